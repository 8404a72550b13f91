//! Which requests need a key, and which keys and bodies are taken.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use keylane_web::{BoxError, GuardBody, IdempotencyLayer};
use tower::{Layer, service_fn};

use crate::stage::{Calls, code, counting, header, post, redis, send, unique};

#[tokio::test]
async fn requests_without_a_key_and_safe_ones_pass() {
    let calls = Calls::default();
    let layer = IdempotencyLayer::builder(redis().await, unique("pass")).build().unwrap();
    let service = layer.layer(counting(&calls));
    let safe = || {
        let mut request = post("key", "");
        *request.method_mut() = Method::GET;
        request
    };
    for request in [post("", "a"), post("", "a"), safe(), safe()] {
        assert_eq!(send(&service, request).await.status(), StatusCode::OK);
    }
    assert_eq!(calls.count(), 4);
}

#[tokio::test]
async fn a_key_may_be_required_and_must_be_one() {
    let calls = Calls::default();
    let layer = IdempotencyLayer::builder(redis().await, unique("required")).required().build().unwrap();
    let service = layer.layer(counting(&calls));
    let mut twice = post("key", "");
    twice.headers_mut().append("x-idempotency-key", "other".parse().unwrap());
    for request in [post("", ""), post(&"k".repeat(129), ""), post("a b", ""), twice] {
        let answer = send(&service, request).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::BAD_REQUEST, "A0400"));
    }
    assert_eq!(calls.count(), 0);
    assert_eq!(send(&service, post(&"k".repeat(128), "")).await.status(), StatusCode::OK);
}

/// Answers with a body of the length that the request names, in small pieces.
async fn answer_of(request: Request<GuardBody>) -> Result<Response<Full<Bytes>>, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    let length: usize = String::from_utf8(body.to_vec())?.trim().parse()?;
    Ok(Response::new(Full::new(Bytes::from(vec![b'x'; length]))))
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_limit() {
    let layer =
        IdempotencyLayer::builder(redis().await, unique("request")).request_limit(100).build().unwrap();
    let service = layer.layer(service_fn(answer_of));
    let fits = send(&service, post("fits", format!("{:100}", 7))).await;
    assert_eq!((fits.status(), fits.body().len()), (StatusCode::OK, 7));
    let answer = send(&service, post("long", format!("{:101}", 7))).await;
    assert_eq!((answer.status(), code(&answer).as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "A0400"));
    // Nothing was claimed, and nothing limits a request without a key.
    assert_eq!(send(&service, post("long", "7")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, post("", format!("{:5000}", 7))).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_answer_beyond_its_limit_comes_whole_but_once() {
    let calls = Calls::default();
    let handler = service_fn({
        let calls = calls.clone();
        move |request| {
            calls.add();
            answer_of(request)
        }
    });
    let layer = IdempotencyLayer::builder(redis().await, unique("answer")).answer_limit(100).build().unwrap();
    let service = layer.layer(handler);
    assert_eq!(send(&service, post("fits", "100")).await.body().len(), 100);
    assert_eq!(send(&service, post("fits", "100")).await.body().len(), 100);
    assert_eq!(send(&service, post("large", "5000000")).await.body().len(), 5_000_000);
    let repeat = send(&service, post("large", "5000000")).await;
    assert_eq!((repeat.status(), code(&repeat).as_str()), (StatusCode::CONFLICT, "A0403"));
    assert_eq!(header(&repeat, "idempotent-replayed"), Some("true"));
    assert_eq!(calls.count(), 2);
}
