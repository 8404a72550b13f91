//! Handlers that fail, panic, never end or lose their client.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use keylane_web::{Answer, Begun, BoxError, Claim, GuardBody, IdempotencyLayer, IdempotencyStore};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::stage::{Calls, code, post, redis, send, unique, until};

/// The ways in which the handler fails, in turn; then it succeeds.
async fn fail(call: usize) -> Result<Response<Full<Bytes>>, BoxError> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"done")));
    match call {
        1 => *response.status_mut() = StatusCode::BAD_GATEWAY,
        2 => *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY,
        3 => panic!("a handler panics"),
        4 => return Err("a service fails".into()),
        5 => std::future::pending().await,
        _ => {}
    }
    Ok(response)
}

#[tokio::test]
async fn a_failure_frees_the_key() {
    let calls = Calls::default();
    let handler = service_fn({
        let calls = calls.clone();
        move |_: Request<GuardBody>| fail(calls.add())
    });
    let builder = IdempotencyLayer::builder(redis().await, unique("fails")).lease(Duration::from_secs(5));
    let service = builder.build().unwrap().layer(handler);
    let status = async || send(&service, post("key", "order")).await.status().as_u16();
    assert_eq!([status().await, status().await, status().await], [502, 422, 500]);
    assert!(service.clone().oneshot(post("key", "order")).await.is_err());
    // It is stopped before its lease ends, and the key is free at once.
    let begun = Instant::now();
    let stopped = send(&service, post("key", "order")).await;
    assert_eq!((stopped.status(), code(&stopped).as_str()), (StatusCode::GATEWAY_TIMEOUT, "B0100"));
    assert!((4_400..4_990).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert_eq!((status().await, calls.count()), (200, 6));
    assert_eq!((status().await, calls.count()), (200, 6));
}

#[tokio::test]
async fn a_body_that_fails_frees_the_key() {
    let calls = Calls::default();
    let handler = service_fn({
        let calls = calls.clone();
        move |_: Request<GuardBody>| {
            let fails = calls.add() == 1;
            let parts = [Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("broken"))];
            let parts = parts.into_iter().take(if fails { 2 } else { 1 });
            let frames = parts.map(|part| part.map(http_body::Frame::data));
            let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
            async move { Ok::<_, BoxError>(Response::new(body)) }
        }
    });
    let layer = IdempotencyLayer::builder(redis().await, unique("body")).build().unwrap();
    let service = layer.layer(handler);
    assert_eq!(send(&service, post("key", "order")).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(&send(&service, post("key", "order")).await.body()[..], b"half");
}

/// Holds its requests until the gate opens.
async fn gated(calls: Calls, gate: Arc<Semaphore>) -> &'static str {
    calls.add();
    drop(gate.acquire().await.unwrap());
    "done"
}

#[tokio::test]
async fn a_handler_whose_client_is_gone_ends_and_its_answer_waits() {
    let (calls, gate) = (Calls::default(), Arc::new(Semaphore::new(0)));
    let layer = IdempotencyLayer::builder(redis().await, unique("gone")).build().unwrap();
    let handler = {
        let (calls, gate) = (calls.clone(), Arc::clone(&gate));
        move || gated(calls, gate)
    };
    let app = axum::Router::new().route("/orders", axum::routing::post(handler)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let request = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = post("key", "order");
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        let answer =
            tokio::spawn(
                async move { sender.send_request(request).await.map(|answer| answer.status().as_u16()) },
            );
        (connection, answer)
    };
    let (connection, _answer) = request().await;
    until(async || calls.count() == 1).await;
    connection.abort();
    assert!(connection.await.unwrap_err().is_cancelled());
    let status = async || request().await.1.await.unwrap().unwrap();
    // The server has seen the end of the first connection when it answers others.
    assert_eq!(status().await, 409);
    gate.add_permits(1);
    until(async || status().await == 200).await;
    assert_eq!(calls.count(), 1);
    server.abort();
}

/// A claim as the layer makes it, with a lease of a second, by way of a handler that shows it.
pub(crate) async fn claim(store: impl IdempotencyStore, scope: &str) -> Claim {
    let (shown, mut claims) = tokio::sync::mpsc::unbounded_channel();
    let handler = service_fn(move |request: Request<GuardBody>| {
        shown.send(request.extensions().get::<Claim>().unwrap().clone()).unwrap();
        async { Err::<Response<Full<Bytes>>, BoxError>("not now".into()) }
    });
    let builder = IdempotencyLayer::builder(store, scope).lease(Duration::from_secs(1));
    assert!(builder.build().unwrap().layer(handler).oneshot(post("key", "order")).await.is_err());
    claims.recv().await.unwrap()
}

/// A claim whose lease ends, and what it can do when the next one has the key.
pub(crate) async fn late_owner<S: IdempotencyStore + Clone>(store: S, scope: &str) {
    let (late, next) = (claim(store.clone(), scope).await, claim(store.clone(), scope).await);
    let answer = |text: &'static str| {
        Answer::new(StatusCode::OK, Default::default(), Bytes::from_static(text.as_bytes()))
    };
    assert_eq!(store.begin(&late).await.unwrap(), Begun::Execute);
    let begun = Instant::now();
    assert_eq!(store.begin(&next).await.unwrap(), Begun::InProgress);
    until(async || store.begin(&next).await.unwrap() == Begun::Execute).await;
    assert!(begun.elapsed() > Duration::from_millis(800), "{:?}", begun.elapsed());
    // The key is the next one's, which is at work, and later is done.
    assert!(!store.finish(&late, &answer("late")).await.unwrap());
    assert!(!store.free(&late).await.unwrap());
    assert_eq!(store.begin(&late).await.unwrap(), Begun::InProgress);
    assert!(store.finish(&next, &answer("next")).await.unwrap());
    assert!(store.finish(&next, &answer("next")).await.unwrap(), "a repetition of the call");
    assert!(!store.finish(&late, &answer("late")).await.unwrap());
    assert!(!store.free(&late).await.unwrap());
    assert!(store.free(&next).await.unwrap(), "what is done stays done");
    assert_eq!(store.begin(&late).await.unwrap(), Begun::Done(answer("next")));
}

#[tokio::test]
async fn a_late_owner_changes_nothing_of_the_next_one() {
    late_owner(redis().await, &unique("late")).await;
}
