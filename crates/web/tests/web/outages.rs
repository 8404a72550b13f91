//! A Redis that is killed, frozen and started again in the middle.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use keylane_web::{IdempotencyLayer, Limit, RateLimitLayer, Redis, WhenAway};
use rustix::process::Signal;
use tokio::{sync::Semaphore, time::Instant};
use tower::Layer;

use crate::stage::{Calls, OwnRedis, code, counting, gated, header, post, send, unique, until};

#[tokio::test]
async fn while_redis_is_away_the_setting_decides() {
    let mut own = OwnRedis::start().await;
    let redis = own.open().await;
    let limited = |when| {
        let builder = RateLimitLayer::builder(unique("away"), Limit::per_minute(2)).store(redis.clone());
        builder.when_away(when).build().unwrap().layer(counting(&Calls::default()))
    };
    let (local, allow, refuse) =
        (limited(WhenAway::Local), limited(WhenAway::Allow), limited(WhenAway::Refuse));
    for service in [&local, &allow, &refuse] {
        let answer = send(service, post("", "")).await;
        assert_eq!(header(&answer, "ratelimit-remaining"), Some("1"));
    }
    own.kill().await;
    let statuses = async |service: &_| {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(send(service, post("", "")).await.status().as_u16());
        }
        statuses
    };
    // The bucket of this process begins full.
    assert_eq!(statuses(&local).await, [200, 200, 429]);
    assert_eq!(statuses(&allow).await, [200, 200, 200]);
    let answer = send(&refuse, post("", "")).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "C0001"));
    assert_eq!(header(&answer, "retry-after"), Some("1"));
    // What was taken before counts again when it is back: the second token is taken, the third is none.
    own.restart().await;
    until(async || send(&refuse, post("", "")).await.status() != StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(send(&refuse, post("", "")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_redis_that_hangs_holds_up_one_request_a_second() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let own = OwnRedis::start().await;
    let redis = own.open().await.timeout(TIMEOUT);
    let builder = RateLimitLayer::builder(unique("hangs"), Limit::per_minute(1_000)).store(redis);
    let service = builder.build().unwrap().layer(counting(&Calls::default()));
    send(&service, post("", "")).await;
    own.signal(Signal::STOP);
    let (begun, mut held_up) = (Instant::now(), 0);
    for _ in 0..500 {
        let asked = Instant::now();
        assert_eq!(send(&service, post("", "")).await.status(), StatusCode::OK);
        held_up += u64::from(asked.elapsed() >= TIMEOUT);
    }
    // One at the start, one in each second since, and one that the machine may have held up.
    let most = 2 + begun.elapsed().as_secs();
    assert!(held_up <= most, "{held_up} of at most {most}");
    own.signal(Signal::CONT);
}

#[tokio::test]
async fn without_a_store_no_request_with_a_key_is_executed() {
    let calls = Calls::default();
    // Nothing has ever listened there.
    let nowhere = Redis::open("redis://127.0.0.1:9/").await.unwrap();
    let layer = IdempotencyLayer::builder(nowhere, unique("nowhere")).build().unwrap();
    let service = layer.layer(counting(&calls));
    let answer = send(&service, post("key", "order")).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "C0001"));
    assert_eq!((header(&answer, "retry-after"), calls.count()), (Some("1"), 0));
    assert_eq!(send(&service, post("", "order")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_key_that_was_claimed_without_an_answer_is_free_again() {
    let own = OwnRedis::start().await;
    let calls = Calls::default();
    let redis = own.open().await.timeout(Duration::from_millis(200));
    // Its lease is longer than the test has patience.
    let service = IdempotencyLayer::builder(redis, unique("frozen")).build().unwrap().layer(counting(&calls));
    assert_eq!(send(&service, post("first", "order")).await.status(), StatusCode::OK);
    own.signal(Signal::STOP);
    let answer = send(&service, post("key", "order")).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "C0001"));
    // Now it claims the key for a request that is no longer executed.
    own.signal(Signal::CONT);
    until(async || send(&service, post("key", "order")).await.status() == StatusCode::OK).await;
    assert_eq!(calls.count(), 2);
}

#[tokio::test]
async fn an_answer_outlives_a_redis_that_is_killed_during_the_execution() {
    let mut own = OwnRedis::start().await;
    let (calls, gate) = (Calls::default(), Arc::new(Semaphore::new(0)));
    let service = IdempotencyLayer::builder(own.open().await, unique("killed"))
        .build()
        .unwrap()
        .layer(gated(&calls, &gate));
    let first = tokio::spawn({
        let service = service.clone();
        async move { send(&service, post("key", "order")).await }
    });
    until(async || calls.count() == 1).await;
    own.kill().await;
    gate.add_permits(1);
    // The client has its answer, although the store was not told.
    assert_eq!(&first.await.unwrap().body()[..], b"placed");
    own.restart().await;
    let mut seen = Vec::new();
    until(async || {
        let answer = send(&service, post("key", "order")).await;
        let is_answered = answer.status() == StatusCode::OK;
        seen.push(answer);
        is_answered
    })
    .await;
    let repeat = seen.pop().unwrap();
    assert_eq!((&repeat.body()[..], header(&repeat, "idempotent-replayed")), (&b"placed"[..], Some("true")));
    assert!(seen.iter().all(|answer| ["A0401", "C0001"].contains(&code(answer).as_str())), "{seen:?}");
    assert_eq!(calls.count(), 1);
}
