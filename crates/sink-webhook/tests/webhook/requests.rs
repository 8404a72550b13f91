//! What an endpoint sees of a record.

use std::collections::BTreeMap;

use keylane_message::{Form, Received};
use keylane_webhook::{Route, Secret, WebhookSink};

use crate::{
    server::{Got, Server, answer},
    stage::{SECRET, Stage, config},
};

const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// What an endpoint does: any of the signatures may be that of its secret.
fn is_signed(got: &Got, secret: &str) -> bool {
    let seconds = got.header("webhook-timestamp").parse().unwrap();
    let expected = Secret::parse(secret).unwrap().sign(got.header("webhook-id"), seconds, &got.body);
    got.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[tokio::test]
async fn a_request_is_a_signed_cloud_event() {
    let server = Server::start(|_| answer(204).body("".into()).ok()).await;
    let config =
        config().source("/shop").secret(Secret::parse(OTHER).unwrap()).header("authorization", "Bearer x");
    let route =
        Route::to(server.url("/hooks?a=b")).header("authorization", "of the route").header("team", "sales");
    let mut stage = Stage::of(WebhookSink::new(config).unwrap().route(route)).await;
    stage.schedule_one("{\"id\":1}").await;
    let got = server.next().await;
    assert!(is_signed(&got, SECRET) && is_signed(&got, OTHER), "{:?}", got.parts);
    assert_eq!((got.parts.method.as_str(), got.parts.uri.to_string().as_str()), ("POST", "/hooks?a=b"));
    assert_eq!(got.body(), "{\"id\":1}");
    let id = got.header("webhook-id").to_owned();
    assert_eq!((got.header("idempotency-key"), got.header("ce-id")), (id.as_str(), id.as_str()));
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(since.abs_diff(got.header("webhook-timestamp").parse().unwrap()) < 60);
    let mut headers = got.headers();
    headers.retain(|name, _| !name.starts_with("webhook-") && name != "idempotency-key" && name != "ce-id");
    let expected = [
        ("authorization", "Bearer x"),
        ("ce-partitionkey", "key-1"),
        ("ce-sequence", "00000000000000000001"),
        ("ce-source", "/shop"),
        ("ce-specversion", "1.0"),
        ("ce-type", "order.placed"),
        ("content-length", "8"),
        ("content-type", "application/json"),
        ("host", &server.address.to_string()),
        ("team", "sales"),
        ("tenant", "acmé"),
        ("user-agent", concat!("keylane-webhook/", env!("CARGO_PKG_VERSION"))),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    stage.until_idle().await;
    stage.end().await;
}

#[tokio::test]
async fn an_endpoint_reads_every_form_back() {
    for form in Form::ALL {
        let server = Server::start(|_| answer(200).body("ok".into()).ok()).await;
        let sink = WebhookSink::new(config()).unwrap().route(Route::to(server.url("/")).form(form));
        let mut stage = Stage::of(sink).await;
        stage.schedule_one("{\"id\":1}").await;
        let got = server.next().await;
        assert!(is_signed(&got, SECRET), "{form:?}");
        let headers = got.parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let received = Received::read(headers, None, &got.body).unwrap();
        assert_eq!((received.form, &*received.payload), (form, &b"{\"id\":1}"[..]));
        assert_eq!(received.headers["tenant"], "acmé");
        let id = (form != Form::Plain).then(|| got.header("webhook-id"));
        assert_eq!(received.event_id.as_deref(), id);
        assert!(got.header("content-type").contains("json"), "{form:?}");
        stage.until_idle().await;
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_in_order() {
    let server = Server::start(|_| answer(200).body("".into()).ok()).await;
    let mut stage = Stage::of(WebhookSink::new(config()).unwrap().route(Route::to(server.url("/")))).await;
    let event = |number: usize| (format!("key-{}", number % 10), (number / 10).to_string());
    stage.schedule((0..500).map(event)).await;
    stage.until_idle().await;
    let mut of_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for _ in 0..500 {
        let got = server.next().await;
        let key = got.header("ce-partitionkey").to_owned();
        of_key.entry(key).or_default().push(got.body().parse().unwrap());
    }
    assert_eq!(of_key.len(), 10);
    assert!(of_key.values().all(|numbers| numbers.iter().copied().eq(0..50)), "{of_key:?}");
    stage.end().await;
}
