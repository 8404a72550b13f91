//! One execution per key.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use keylane_web::{BoxError, Claim, GuardBody, IdempotencyLayer, redis_client::AsyncCommands};
use tokio::{sync::Semaphore, task::JoinSet};
use tower::{Layer, service_fn};

use crate::stage::{Calls, PATIENCE, code, counting, gated, header, post, raw_redis, redis, send, unique};

const REPEATS: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_repeats_at_once_are_executed_once() {
    let (calls, gate) = (Calls::default(), Arc::new(Semaphore::new(0)));
    let layer = IdempotencyLayer::builder(redis().await.timeout(PATIENCE), unique("thousand"));
    let service = layer.build().unwrap().layer(gated(&calls, &gate));
    let mut repeats = JoinSet::new();
    for _ in 0..REPEATS {
        let service = service.clone();
        repeats.spawn(async move { send(&service, post("key", "order")).await });
    }
    let mut refused = 0;
    let mut executed = 0;
    while let Some(answer) = repeats.join_next().await {
        let answer = answer.unwrap();
        match answer.status() {
            StatusCode::CONFLICT => {
                assert_eq!((code(&answer).as_str(), header(&answer, "retry-after")), ("A0401", Some("1")));
                refused += 1;
            }
            status => {
                assert_eq!((status, &answer.body()[..]), (StatusCode::OK, &b"placed"[..]));
                assert_eq!(header(&answer, "idempotent-replayed"), None);
                executed += 1;
            }
        }
        // All others were told so while the first one was under way.
        if refused == REPEATS - 1 {
            gate.add_permits(1);
        }
    }
    assert_eq!((calls.count(), executed, refused), (1, 1, REPEATS - 1));
    let repeat = send(&service, post("key", "order")).await;
    assert_eq!((&repeat.body()[..], header(&repeat, "idempotent-replayed")), (&b"placed"[..], Some("true")));
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn a_repeat_has_the_status_the_headers_and_the_body() {
    let handler = service_fn(async |request: Request<GuardBody>| {
        assert_eq!(&*request.extensions().get::<Claim>().unwrap().key, "key");
        let mut response = Response::new(Full::new(Bytes::from_static(b"\x00\xff\r\n")));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert("location", HeaderValue::from_static("/orders/7"));
        response.headers_mut().append("set-cookie", HeaderValue::from_static("a=1"));
        response.headers_mut().append("set-cookie", HeaderValue::from_static("b=2"));
        Ok::<_, BoxError>(response)
    });
    let layer = IdempotencyLayer::builder(redis().await, unique("repeat")).build().unwrap();
    let service = layer.layer(handler);
    let first = send(&service, post("key", "order")).await;
    let mut repeat = send(&service, post("key", "order")).await;
    assert_eq!(repeat.headers_mut().remove("idempotent-replayed"), Some(HeaderValue::from_static("true")));
    assert_eq!(first.status(), StatusCode::CREATED);
    assert_eq!(first.headers().get_all("set-cookie").iter().count(), 2);
    assert_eq!(
        (first.status(), first.headers(), first.body()),
        (repeat.status(), repeat.headers(), repeat.body())
    );
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let calls = Calls::default();
    let layer = IdempotencyLayer::builder(redis().await, unique("other")).build().unwrap();
    let service = layer.layer(counting(&calls));
    assert_eq!(send(&service, post("key", "order of 1")).await.status(), StatusCode::OK);
    let other = send(&service, post("key", "order of 2")).await;
    assert_eq!((other.status(), code(&other).as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "A0402"));
    let mut moved = post("key", "order of 1");
    *moved.uri_mut() = "/refunds".parse().unwrap();
    assert_eq!(code(&send(&service, moved).await), "A0402");
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn scopes_and_subjects_do_not_meet() {
    let calls = Calls::default();
    let scope = unique("scope");
    let user = |parts: &http::request::Parts| Some(parts.headers.get("user")?.to_str().ok()?.to_owned());
    let layer = |scope: String, redis| IdempotencyLayer::builder(redis, scope).by(user).build().unwrap();
    let mine = layer(scope.clone(), redis().await).layer(counting(&calls));
    let other = layer(unique("scope"), redis().await).layer(counting(&calls));
    let as_user = |user: &str, key: &str| {
        let mut request = post(key, "order");
        request.headers_mut().insert("user", user.parse().unwrap());
        request
    };
    send(&mine, as_user("ann", "key")).await;
    send(&mine, as_user("bob", "key")).await;
    send(&mine, as_user("ann:key", "x")).await;
    send(&mine, as_user("ann", "key:x")).await;
    send(&other, as_user("ann", "key")).await;
    assert_eq!(calls.count(), 5);
    let repeat = send(&mine, as_user("ann", "key")).await;
    assert_eq!((&repeat.body()[..], calls.count()), (&b"1"[..], 5));
}

#[tokio::test]
async fn the_record_is_as_documented() {
    let scope = unique("record");
    let layer =
        IdempotencyLayer::builder(redis().await, &scope).keep(Duration::from_secs(600)).build().unwrap();
    let service = keylane_web::TraceIdLayer::new().layer(layer.layer(counting(&Calls::default())));
    let mut request = post("key-1", "order");
    request.headers_mut().insert("x-trace-id", "4bf92f35".parse().unwrap());
    send(&service, request).await;
    let mut redis = raw_redis().await;
    let name = format!("idempotent:{scope}:key-1");
    let fields = ["key", "status", "traceId", "result", "createdAt", "expireAt"];
    let found: Vec<String> = redis.hmget(&name, &fields).await.unwrap();
    assert_eq!(found[..3], ["key-1", "SUCCESS", "4bf92f35"]);
    assert!(found[3].starts_with(r#"{"status":200"#), "{}", found[3]);
    let at = |index: usize| found[index].parse::<u64>().unwrap();
    assert!((600_000..610_000).contains(&(at(5) - at(4))), "{found:?}");
    let ttl: i64 = redis.ttl(&name).await.unwrap();
    assert!((590..=600).contains(&ttl), "{ttl}");
}
