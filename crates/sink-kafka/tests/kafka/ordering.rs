//! The order of each key.

use keylane::Signal;
use keylane_kafka::Route;

use crate::{
    away::BROKER,
    broker,
    stage::{Stage, in_turns, numbers, sink},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_in_order() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let route = Route::to(&topic).events(["order.*"]);
    let mut stage = Stage::of([sink(|config| config).route(route).registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(20, 0, 500)).await;
    stage.until_idle().await;
    assert_eq!(stage.counted_retries(), 0);
    let content = broker::read(&topic).await;
    assert_eq!(content.messages().count(), 10_000, "nothing is repeated without a fault");
    for key in (0..20).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(500), "{key}");
        assert_eq!(content.partitions_of(&key).len(), 1);
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_queue_slows_calls_and_loses_nothing() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    // Room for 64 messages; a call has up to 500.
    let sink = sink(|config| config.queue_bytes(64 * 1024)).route(Route::to(&topic));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(20, 0, 100)).await;
    stage.until_idle().await;
    assert_eq!((stage.counted_retries(), stage.failures().len()), (0, 0));
    let away = stage.seen.iter().any(|signal| matches!(signal, Signal::TargetUnavailable { .. }));
    assert!(!away, "a full queue is no outage");
    let content = broker::read(&topic).await;
    for key in (0..20).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(100), "{key}");
    }
    stage.end().await;
}
