//! What Kafka refuses for good, and what it does to the order of a key.

use keylane::Signal;
use keylane_kafka::Route;

use crate::{
    away::BROKER,
    broker,
    stage::{Stage, in_turns, numbers, sink},
};

fn is_failure(signal: &Signal) -> bool {
    matches!(signal, Signal::RecordFailed { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_overtakes_a_message_that_is_too_large() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[("max.message.bytes", "20000")]).await;
    let sink = sink(|config| config.property("batch.size", "16000")).route(Route::to(&topic));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    let events = in_turns(10, 0, 400).map(|(key, body)| match (key.as_str(), body.as_str()) {
        ("key-0", "250") => (key, "x".repeat(50_000)),
        _ => (key, body),
    });
    stage.schedule("order.placed", events).await;
    stage.until(is_failure).await;
    stage.until_idle().await;
    let told = stage.end().await;
    let failures = told.failures();
    assert_eq!((failures.len(), told.counted_retries()), (1, 0), "{failures:?}");
    assert!(failures[0].contains("Message size too large") && failures[0].contains(&topic), "{failures:?}");
    let content = broker::read(&topic).await;
    assert_eq!(content.first_occurrences("key-0"), numbers(250), "its successors wait behind it");
    for key in (1..10).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(400), "{key}");
    }
}

/// The limit of a topic is about the batch, which the client makes of many messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_messages_in_batches_that_are_too_large_arrive() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[("max.message.bytes", "2000")]).await;
    let mut stage = Stage::of([sink(|config| config).route(Route::to(&topic)).registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(4, 0, 200)).await;
    stage.until_idle().await;
    stage.end_without_failure().await;
    let content = broker::read(&topic).await;
    for key in (0..4).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(200), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_not_there_fails_its_records_alone() {
    let _shared = BROKER.read().await;
    let (topic, missing) = (broker::topic(&[]).await, broker::unused_topic());
    let sink = sink(|config| config.patience(std::time::Duration::from_secs(4)))
        .route(Route::to(&missing).events(["lost"]))
        .route(Route::to(&topic).events(["order.placed"]));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    stage.schedule("lost", [("other".to_owned(), "1".to_owned())]).await;
    stage.schedule("order.placed", in_turns(4, 0, 100)).await;
    stage.until(is_failure).await;
    stage.until_idle().await;
    let told = stage.end().await;
    let failures = told.failures();
    assert_eq!((failures.len(), told.counted_retries()), (1, 0));
    assert!(failures[0].contains(&missing) && failures[0].contains("Unknown topic"), "{failures:?}");
    let content = broker::read(&topic).await;
    for key in (0..4).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(100), "{key}");
    }
}
