//! Trace ids: one from the request to the handler, the log and the response.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use keylane_web::{BoxError, IdempotencyLayer, Trace, TraceIdLayer, event_headers};
use tower::{Layer, service_fn};

use crate::{
    log::Log,
    stage::{header, post, redis, send, unique},
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Answers with what it knows of its trace, and writes a line to the log.
async fn tell<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, BoxError> {
    tracing::info!("at work");
    let of_request = request.extensions().get::<Trace>().map(ToString::to_string);
    let of_task = Trace::current().map(|trace| trace.to_string());
    let text = format!("{of_request:?} {of_task:?} {:?}", event_headers());
    Ok(Response::new(Full::new(text.into())))
}

#[tokio::test]
async fn one_trace_id_goes_from_the_request_to_the_handler_the_log_and_the_response() {
    let (log, _guard) = Log::begin();
    // The execution of an idempotent request is a task of its own, and still has the trace.
    let once = IdempotencyLayer::builder(redis().await, unique("trace")).build().unwrap();
    let service = TraceIdLayer::new().layer(once.layer(service_fn(tell)));
    for key in ["", "key"] {
        let mut request = post(key, "");
        request.headers_mut().insert("x-trace-id", "4bf92f35".parse().unwrap());
        let answer = send(&service, request).await;
        assert_eq!(header(&answer, "x-trace-id"), Some("4bf92f35"));
        let seen = r#"Some("4bf92f35") Some("4bf92f35") {"trace_id": "4bf92f35"}"#;
        assert_eq!(std::str::from_utf8(answer.body()).unwrap(), seen);
    }
    let of_handler = log.lines_with("at work");
    assert_eq!(of_handler.len(), 2, "{of_handler:?}");
    assert!(of_handler.iter().all(|line| line.contains(r#"request{trace_id="4bf92f35"}"#)), "{of_handler:?}");
}

#[tokio::test]
async fn a_traceparent_is_understood_and_goes_on_with_events() {
    let service = TraceIdLayer::new().layer(service_fn(tell));
    let mut request = post("", "");
    request.headers_mut().insert("traceparent", PARENT.parse().unwrap());
    let answer = send(&service, request).await;
    assert_eq!(header(&answer, "x-trace-id"), Some("0af7651916cd43dd8448eb211c80319c"));
    let seen = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(seen.contains(&format!(r#""traceparent": "{PARENT}""#)), "{seen}");
}

#[tokio::test]
async fn a_trace_id_that_is_none_is_replaced() {
    let service = TraceIdLayer::new().layer(service_fn(tell));
    let mut request = post("", "");
    request.headers_mut().insert("x-trace-id", "no id\u{7f}".replace('\u{7f}', "\t").parse().unwrap());
    let answer = send(&service, request).await;
    assert_eq!(header(&answer, "x-trace-id").map(str::len), Some(32));
    assert!(Trace::current().is_none());
}
