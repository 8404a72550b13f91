//! Rate limits: the rule, its script, and the answers to a client.

use std::{net::IpAddr, time::Duration};

use http::StatusCode;
use keylane_web::{
    Bucket, BucketStore, Limit, RateLimitLayer, SettingError, TrustedProxies,
    redis_client::{AsyncCommands, aio::MultiplexedConnection},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tower::Layer;

use crate::stage::{Calls, PATIENCE, code, counting, header, post, raw_redis, redis, send, unique};

/// The state of a bucket in Redis.
async fn bucket(redis: &mut MultiplexedConnection, key: &str) -> (f64, u64) {
    redis.hmget(format!("ratelimit:{key}"), &["tokens", "lastRefillTime"]).await.unwrap()
}

#[test]
fn the_script_decides_as_the_rule_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, redis) = runtime.block_on(async { (redis().await, raw_redis().await) });
    let name = unique("rule");
    let cases = (
        prop_oneof![1u32..=100, 1u32..=1_000_000],
        1u32..=1_000_000,
        any::<bool>(),
        // What was left, and how long ago; a clock may also have gone back.
        prop_oneof![0.0f64..=1.5, 0.0f64..=1e6],
        prop_oneof![-10_000i64..10_000, -10_000_000i64..100_000_000],
        1usize..4,
    );
    let refused = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 300, ..Config::default() });
    let compared = runner.run(&cases, |(rate, capacity, by_minute, left, ago, calls)| {
        let limit = if by_minute { Limit::per_minute(rate) } else { Limit::per_second(rate) }.burst(capacity);
        let mut redis = redis.clone();
        runtime.block_on(async {
            let key = unique(&name);
            let tokens = left.min(f64::from(capacity));
            let (now, micros): (i64, i64) =
                keylane_web::redis_client::cmd("TIME").query_async(&mut redis).await.unwrap();
            let asked_at = now * 1_000_000 + micros;
            let at = (asked_at - ago).to_string();
            let state = [("tokens", tokens.to_string()), ("lastRefillTime", at)];
            let () = redis.hset_multiple(format!("ratelimit:{key}"), &state).await.unwrap();
            for _ in 0..calls {
                let (tokens, at) = bucket(&mut redis, &key).await;
                let mut before = Bucket::full(limit, at);
                before.tokens = tokens;
                let taken = store.take(&key, limit).await.unwrap();
                let (tokens, now) = bucket(&mut redis, &key).await;
                prop_assert!(now >= asked_at as u64, "the bucket has the time of the server");
                let (after, expected) = before.take(limit, now);
                refused.set(refused.get() + u32::from(!taken.allowed));
                prop_assert_eq!(taken, expected);
                prop_assert_eq!((tokens, now), (after.tokens, after.refilled_at));
            }
            Ok(())
        })
    });
    compared.unwrap();
    assert!(refused.get() > 10, "{} were refused", refused.get());
}

#[test]
fn no_more_pass_than_the_capacity_and_what_came_since() {
    let mut runner = TestRunner::new(Config { cases: 500, ..Config::default() });
    let cases =
        (1u32..1_000, 1u32..1_000, prop::collection::vec(prop_oneof![0u64..2_000, 0u64..2_000_000], 1..200));
    let bounded = runner.run(&cases, |(rate, capacity, pauses)| {
        let limit = Limit::per_second(rate).burst(capacity);
        let (mut now, mut passed, mut bucket) = (0, 0u64, Bucket::full(limit, 0));
        for pause in pauses {
            now += pause;
            let (next, taken) = bucket.take(limit, now);
            bucket = next;
            passed += u64::from(taken.allowed);
            let most = f64::from(capacity) + now as f64 * f64::from(rate) / 1e6;
            prop_assert!(passed as f64 <= most + 1e-6, "{passed} > {most}");
            prop_assert!(taken.tokens > -1e-6 && taken.remaining() <= u64::from(capacity));
            if !taken.allowed {
                // A client that comes back after `Retry-After` is let in.
                let later = now + taken.until_next(limit).as_micros() as u64;
                prop_assert!(bucket.take(limit, later).1.allowed);
                prop_assert!(
                    !bucket.take(limit, later.saturating_sub(2).max(now)).1.allowed || later <= now + 2
                );
            }
        }
        Ok(())
    });
    bounded.unwrap();
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_told_when_to_come_back() {
    let (calls, name) = (Calls::default(), unique("told"));
    let limit = Limit::per_minute(2).burst(3);
    let layer = RateLimitLayer::builder(&name, limit).store(redis().await).build().unwrap();
    let service = layer.layer(counting(&calls));
    for remaining in ["2", "1", "0"] {
        let answer = send(&service, post("", "")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let told = [header(&answer, "ratelimit-limit"), header(&answer, "ratelimit-remaining")];
        assert_eq!(told, [Some("3"), Some(remaining)]);
    }
    let answer = send(&service, post("", "")).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::TOO_MANY_REQUESTS, "A0500"));
    let told = ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    assert_eq!(told.map(|name| header(&answer, name)), [Some("30"), Some("3"), Some("0"), Some("90")]);
    assert_eq!(calls.count(), 3);
    // What stands in Redis: twice the 90 seconds in which the bucket fills, and one.
    let mut redis = raw_redis().await;
    let (tokens, _) = bucket(&mut redis, &name).await;
    let ttl: i64 = redis.ttl(format!("ratelimit:{name}")).await.unwrap();
    assert!((0.0..0.5).contains(&tokens) && (170..=181).contains(&ttl), "{tokens} {ttl}");
}

#[tokio::test]
async fn users_have_buckets_of_their_own() {
    let calls = Calls::default();
    let user = |parts: &http::request::Parts| Some(parts.headers.get("user")?.to_str().ok()?.to_owned());
    let builder = RateLimitLayer::builder(unique("users"), Limit::per_minute(1)).store(redis().await);
    let service = builder.by(user).build().unwrap().layer(counting(&calls));
    let status = async |user: &str| {
        let mut request = post("", "");
        if !user.is_empty() {
            request.headers_mut().insert("user", user.parse().unwrap());
        }
        send(&service, request).await.status().as_u16()
    };
    assert_eq!([status("ann").await, status("bob").await, status("ann").await], [200, 200, 429]);
    // Those without one share the bucket of the name.
    assert_eq!([status("").await, status("").await], [200, 429]);
    // A subject that looks like the key of another one.
    assert_eq!([status("ann:x").await, status("x:ann").await, status(&"y".repeat(5_000)).await], [200; 3]);
}

#[tokio::test]
async fn a_forwarded_address_counts_from_a_trusted_proxy_only() {
    let calls = Calls::default();
    let peer = |parts: &http::request::Parts| parts.extensions.get::<IpAddr>().copied();
    let builder = RateLimitLayer::builder(unique("address"), Limit::per_minute(1));
    let proxies = TrustedProxies::new(["10.0.0.0/8"]).unwrap();
    let service = builder.by_address(proxies, peer).build().unwrap().layer(counting(&calls));
    let status = async |peer: &str, forwarded: &str| {
        let mut request = post("", "");
        request.extensions_mut().insert(peer.parse::<IpAddr>().unwrap());
        request.headers_mut().insert("x-forwarded-for", forwarded.parse().unwrap());
        send(&service, request).await.status().as_u16()
    };
    assert_eq!(status("10.0.0.1", "203.0.113.7").await, 200);
    // Another way to the same client, and one that invents the hops before it.
    assert_eq!(status("10.0.0.2", "198.51.100.9, 203.0.113.7").await, 429);
    assert_eq!(status("203.0.113.7", "198.51.100.1").await, 429);
    assert_eq!(status("10.0.0.1", "198.51.100.1").await, 200);
}

#[tokio::test]
async fn tokens_come_back() {
    let calls = Calls::default();
    let limit = Limit::per_second(20).burst(1);
    let layer = RateLimitLayer::builder(unique("back"), limit).store(redis().await).build().unwrap();
    let service = layer.layer(counting(&calls));
    let begun = tokio::time::Instant::now();
    let five = async {
        while calls.count() < 5 {
            send(&service, post("", "")).await;
        }
    };
    tokio::time::timeout(PATIENCE, five).await.expect("no tokens");
    // Four tokens came, one in 50 ms each.
    assert!(begun.elapsed() >= Duration::from_millis(199), "{:?}", begun.elapsed());
}

#[test]
fn a_limit_that_cannot_be_is_refused() {
    let refused = |limit| RateLimitLayer::builder("api", limit).build().err();
    let too_large = Limit::per_second(1).burst(1_000_001);
    for limit in [Limit::per_second(0), Limit::per_second(1).burst(0), too_large] {
        assert!(matches!(refused(limit), Some(SettingError::Limit { .. })), "{limit:?}");
    }
    assert!(refused(Limit::per_second(1_000_000)).is_none());
    let name = RateLimitLayer::builder("a:b", Limit::per_second(1)).build().err();
    assert!(matches!(name, Some(SettingError::Name { .. })));
}
