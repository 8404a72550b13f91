//! One form for all errors.

use axum::{
    Json, Router,
    routing::{get, post as on_post},
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header as names};
use http_body_util::Full;
use keylane_web::{
    BoxError, EnvelopeLayer, ErrorForm, GuardBody, Limit, RateLimitLayer, Refusal, ResultEnvelope,
    TraceIdLayer,
};
use serde_json::{Value, json};
use tower::{Layer, ServiceBuilder, service_fn};

use crate::stage::{code, header, post, send, unique};

fn asked(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("x-trace-id", "4bf92f35");
    request.body(Full::default()).unwrap()
}

async fn refuse() -> Response<GuardBody> {
    Refusal::new(StatusCode::CONFLICT, "A4711", "it is sold out").response()
}

fn app(form: ErrorForm) -> Router {
    let limit = RateLimitLayer::builder(unique("envelope"), Limit::per_minute(1)).build().unwrap();
    let guards = ServiceBuilder::new().layer(TraceIdLayer::new()).layer(EnvelopeLayer::new().form(form));
    let limited = Router::new().route("/limited", get(async || "ok")).layer(limit);
    Router::new()
        .route("/order", get(async || Json(ResultEnvelope::ok(json!({ "id": 7 })))))
        .route("/panic", get(async || -> &'static str { panic!("a secret") }))
        .route("/fails", get(async || (StatusCode::INTERNAL_SERVER_ERROR, "a secret")))
        .route("/bad", get(async || (StatusCode::BAD_REQUEST, "the quantity is missing")))
        .route("/own", get(async || (StatusCode::BAD_REQUEST, Json(json!({ "mine": true })))))
        .route(
            "/busy",
            get(async || (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7"), ("etag", "x")], "later")),
        )
        .route("/refused", get(refuse))
        .route("/post", on_post(async || "ok"))
        .merge(limited)
        .layer(guards)
}

async fn answer(app: &Router, path: &str) -> (StatusCode, Value) {
    let answer = send(app, asked(path)).await;
    assert_eq!(header(&answer, "x-trace-id"), Some("4bf92f35"));
    (answer.status(), serde_json::from_slice(answer.body()).unwrap())
}

fn envelope(code: &str, message: &str) -> Value {
    json!({ "code": code, "message": message, "traceId": "4bf92f35", "data": null })
}

#[tokio::test]
async fn results_and_all_errors_have_one_form() {
    let app = app(ErrorForm::Envelope);
    let ok = json!({ "code": "00000", "message": "ok", "traceId": "4bf92f35", "data": { "id": 7 } });
    assert_eq!(answer(&app, "/order").await, (StatusCode::OK, ok));
    let failed = (StatusCode::INTERNAL_SERVER_ERROR, envelope("B0001", "Internal Server Error"));
    assert_eq!(answer(&app, "/panic").await, failed);
    assert_eq!(answer(&app, "/fails").await, failed);
    let bad = (StatusCode::BAD_REQUEST, envelope("A0001", "the quantity is missing"));
    assert_eq!(answer(&app, "/bad").await, bad);
    assert_eq!(answer(&app, "/own").await, (StatusCode::BAD_REQUEST, json!({ "mine": true })));
    assert_eq!(answer(&app, "/refused").await, (StatusCode::CONFLICT, envelope("A4711", "it is sold out")));
    assert_eq!(answer(&app, "/nowhere").await, (StatusCode::NOT_FOUND, envelope("A0001", "Not Found")));
    let not_allowed = send(&app, asked("/post")).await;
    assert_eq!((code(&not_allowed).as_str(), header(&not_allowed, "allow")), ("A0001", Some("POST")));
    // Headers stay, except those about the replaced body.
    let busy = send(&app, asked("/busy")).await;
    let headers = ["retry-after", "etag", "content-type"].map(|name| header(&busy, name));
    assert_eq!(headers, [Some("7"), None, Some("application/json")]);
}

#[tokio::test]
async fn a_refusal_of_a_guard_takes_the_form_and_keeps_its_headers() {
    let app = app(ErrorForm::Problem);
    assert_eq!(send(&app, asked("/limited")).await.status(), StatusCode::OK);
    let answer = send(&app, asked("/limited")).await;
    assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    let problem: Value = serde_json::from_slice(answer.body()).unwrap();
    let expected = json!({
        "type": "about:blank", "title": "Too Many Requests", "status": 429,
        "detail": "too many requests: try again in 60 s", "code": "A0500", "traceId": "4bf92f35",
    });
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn errors_of_services_become_answers_without_their_text() {
    let failing = service_fn(async |_: Request<Full<Bytes>>| -> Result<Response<Full<Bytes>>, BoxError> {
        Err("a secret".into())
    });
    let answer = send(&EnvelopeLayer::new().layer(failing), post("", "")).await;
    assert_eq!((answer.status().as_u16(), code(&answer).as_str()), (500, "B0001"));
    assert!(!answer.body().windows(6).any(|part| part == b"secret"));
}

#[tokio::test]
async fn a_long_body_of_an_error_is_cut_and_its_length_is_right() {
    let long = service_fn(async |_: Request<Full<Bytes>>| {
        let mut response = Response::new(Full::new(Bytes::from(vec![b'x'; 100_000])));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response.headers_mut().insert(names::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response.headers_mut().insert(names::CONTENT_LENGTH, HeaderValue::from_static("100000"));
        Ok::<_, BoxError>(response)
    });
    let answer = send(&EnvelopeLayer::new().layer(long), post("", "")).await;
    assert_eq!((header(&answer, "content-length"), code(&answer).as_str()), (None, "A0001"));
}
