//! What an answer means for the record and for its endpoint.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use keylane::{Signal, admin::Filter};
use keylane_webhook::{Route, WebhookSink};
use tokio::{net::TcpListener, time::Instant};

use crate::{
    server::{Server, answer},
    stage::{Stage, config},
};

fn sink(server: &Server) -> WebhookSink {
    WebhookSink::new(config()).unwrap().route(Route::to(server.url("/hooks/T0KEN")))
}

fn is_away(signal: &Signal) -> bool {
    matches!(signal, Signal::TargetUnavailable { .. })
}

#[tokio::test]
async fn a_pause_that_the_endpoint_asks_for_is_kept_and_costs_no_attempt() {
    for status in [429, 503] {
        let calls = AtomicUsize::new(0);
        let server = Server::start(move |_| match calls.fetch_add(1, Relaxed) {
            0 => answer(status).header("retry-after", "1").body("".into()).ok(),
            _ => answer(200).body("".into()).ok(),
        })
        .await;
        let mut stage = Stage::of(sink(&server)).await;
        stage.schedule_one("1").await;
        assert_eq!(server.next().await.body(), "1");
        let asked = Instant::now();
        stage.until(is_away).await;
        // Another key meets the same pause, without a request.
        stage.schedule([("key-2".to_owned(), "2".to_owned())]).await;
        stage.until(is_away).await;
        server.next().await;
        // One second, less the time that the first answer took.
        assert!(asked.elapsed() >= Duration::from_millis(900), "{:?}", asked.elapsed());
        stage.until_idle().await;
        assert_eq!((stage.counted_retries(), server.rest().await.len()), (0, 1));
        stage.end().await;
    }
}

#[tokio::test]
async fn what_the_endpoint_refuses_fails_with_its_status_and_little_of_its_words() {
    let server = Server::start(|_| {
        let words = format!("no such\nhook {}", "x".repeat(100_000));
        answer(410).body(words.into()).ok()
    })
    .await;
    let mut stage = Stage::of(sink(&server)).await;
    stage.schedule_one("the payload").await;
    let failure = stage.failure().await;
    assert!(
        failure.contains(&format!("http://{} answered 410: \"no such hook xxx", server.address)),
        "{failure}"
    );
    assert!(failure.len() < 300 && !failure.contains("T0KEN") && !failure.contains("payload"), "{failure}");
    assert_eq!(stage.counted_retries(), 0);
    stage.end().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::start(|_| answer(200).body("".into()).ok()).await;
    let target = other.url("/");
    let server = Server::start(move |_| answer(307).header("location", &target).body("".into()).ok()).await;
    let mut stage = Stage::of(sink(&server)).await;
    stage.schedule_one("1").await;
    assert!(stage.failure().await.contains("answered 307"));
    assert!(other.rest().await.is_empty());
    stage.end().await;
}

#[tokio::test]
async fn an_error_of_the_endpoint_is_retried_and_counts() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        let status = if calls.fetch_add(1, Relaxed) == 0 { 500 } else { 200 };
        answer(status).body("".into()).ok()
    })
    .await;
    let mut stage = Stage::of(sink(&server)).await;
    stage.schedule_one("1").await;
    let (first, second) = (server.next().await, server.next().await);
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"), "a repetition is known by its id");
    stage.until_idle().await;
    assert_eq!(stage.counted_retries(), 1);
    stage.end().await;
}

#[tokio::test]
async fn an_endpoint_that_is_away_costs_no_attempt_and_the_order_stays() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let route = Route::to(format!("http://{address}/"));
    let mut stage = Stage::of(WebhookSink::new(config()).unwrap().route(route)).await;
    stage.schedule((0..20).map(|number| (format!("key-{}", number % 2), number.to_string()))).await;
    stage.until(is_away).await;
    stage.until(is_away).await;
    let server = Server::on(TcpListener::bind(address).await.unwrap(), |_| answer(200).body("".into()).ok());
    stage.until_idle().await;
    assert_eq!(stage.counted_retries(), 0);
    let numbers: Vec<usize> = server.rest().await.iter().map(|body| body.parse().unwrap()).collect();
    for key in 0..2 {
        let of_key = numbers.iter().copied().filter(|number| number % 2 == key);
        assert!(of_key.eq((key..20).step_by(2)), "{numbers:?}");
    }
    stage.end().await;
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_away() {
    let server = Server::start(|got| match got.header("ce-sequence").ends_with('1') {
        true => None,
        false => answer(200).body("".into()).ok(),
    })
    .await;
    let config = config().timeout(Duration::from_secs(1));
    let mut stage = Stage::of(WebhookSink::new(config).unwrap().route(Route::to(server.url("/")))).await;
    stage.schedule_one("1").await;
    stage.until(is_away).await;
    assert_eq!(stage.counted_retries(), 0);
    stage.end().await;
}

#[tokio::test]
async fn what_is_refused_goes_to_the_dead_letters_and_its_key_goes_on() {
    let server = Server::start(|got| {
        let status = if got.body() == "1" { 422 } else { 200 };
        answer(status).body("no".into()).ok()
    })
    .await;
    let dead = Server::start(|_| answer(200).body("".into()).ok()).await;
    let route = Route::to(server.url("/hooks/T0KEN")).dead_letters(dead.url("/dead"));
    let mut stage = Stage::of(WebhookSink::new(config()).unwrap().route(route)).await;
    stage.schedule((0..3).map(|number| ("key-1".to_owned(), number.to_string()))).await;
    stage.until_idle().await;
    assert_eq!(server.rest().await, ["0", "1", "2"]);
    let letter = dead.next().await;
    assert_eq!((letter.body(), letter.header("keylane-attempts")), ("1", "1"));
    assert_eq!(letter.header("keylane-error-class"), "webhook-rejected");
    assert_eq!(letter.header("keylane-target"), format!("http://{}", server.address));
    assert_eq!(letter.header("keylane-event-id"), letter.header("webhook-id"));
    assert!(letter.header("keylane-error").ends_with("answered 422: \"no\""), "{:?}", letter.parts);
    stage.end().await;
}

#[tokio::test]
async fn what_is_refused_goes_to_the_table_without_the_secret_of_its_url() {
    let server = Server::start(|got| {
        let status = if got.body() == "1" { 422 } else { 200 };
        answer(status).body("no".into()).ok()
    })
    .await;
    let route = Route::to(server.url("/hooks/T0KEN")).dead_letter_table();
    let mut stage = Stage::of(WebhookSink::new(config()).unwrap().route(route)).await;
    stage.schedule((0..3).map(|number| ("key-1".to_owned(), number.to_string()))).await;
    stage.until_idle().await;
    assert_eq!(server.rest().await, ["0", "1", "2"]);
    let letters = stage.outbox.admin().dead_letters(&Filter::all(), 0, 100).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&letter.payload[..], letter.attempts), (&b"1"[..], 1));
    assert_eq!(letter.target, format!("http://{}", server.address));
    assert!(letter.error.ends_with("answered 422: \"no\""), "{}", letter.error);
    stage.end().await;
}
