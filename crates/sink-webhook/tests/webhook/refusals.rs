//! What is never sent to.

use keylane_webhook::{Route, WebhookConfig, WebhookSink};

use crate::{
    server::{Server, answer},
    stage::Stage,
};

/// The failure of a record whose endpoint is in this process, without leave to send there.
async fn failure(url: impl Fn(u16) -> String) -> String {
    let server = Server::start(|_| answer(200).body("".into()).ok()).await;
    let config = WebhookConfig::new().unsigned().allow_http();
    let sink = WebhookSink::new(config).unwrap().route(Route::to(url(server.address.port())));
    let mut stage = Stage::of(sink).await;
    stage.schedule_one("1").await;
    let failure = stage.failure().await;
    assert!(server.rest().await.is_empty(), "{failure}");
    stage.end().await;
    failure
}

#[tokio::test]
async fn an_address_in_the_url_that_is_not_public_is_not_sent_to() {
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]"] {
        let failure = failure(|port| format!("http://{host}:{port}/")).await;
        assert!(failure.contains("is a loopback address; WebhookConfig::allow_network"), "{failure}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_such_an_address_is_not_sent_to() {
    let failure = failure(|port| format!("http://localhost:{port}/")).await;
    assert!(failure.contains("is a loopback address; WebhookConfig::allow_network"), "{failure}");
}

#[tokio::test]
async fn a_target_that_is_no_url_fails_its_record() {
    let failure = failure(|_| "ftp://example.com/".to_owned()).await;
    assert!(failure.contains("another scheme than https"), "{failure}");
}
