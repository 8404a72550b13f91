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
    stage.end_without_failure().await;
    let content = broker::read(&topic).await;
    assert_eq!(content.messages().count(), 10_000, "nothing is repeated without a fault");
    for key in (0..20).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(500), "{key}");
        assert_eq!(content.partitions_of(&key).len(), 1);
    }
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
    let told = stage.end().await;
    let away = told.count(|signal| matches!(signal, Signal::TargetUnavailable { .. }));
    assert_eq!((told.counted_retries(), told.failures().len(), away), (0, 0, 0), "a full queue is no outage");
    let content = broker::read(&topic).await;
    for key in (0..20).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(100), "{key}");
    }
}

/// Keys with what the Java client's own class makes of them: `Utils.toPositive(Utils.murmur2(key)) % 6`, computed with
/// `org.apache.kafka.common.utils.Utils` of kafka-clients 4.3.1. The lengths end in every remainder of the hash's words
/// of four bytes. For two of the keys CRC32 would choose the same partition, for the others another.
const PARTITIONS_OF_THE_JVM: [(&str, i32); 12] = [
    ("a", 4),
    ("ab", 2),
    ("abc", 3),
    ("abcd", 2),
    ("order-1", 4),
    ("order-2", 3),
    ("order-3", 3),
    ("order-42", 0),
    ("tenant-7/order-9", 4),
    ("zażółć", 0),
    ("日本", 3),
    ("0198f5f0-1c7e-7000-8000-000000000001", 1),
];

/// Else a service in Java that writes to the same topic would put the events of one key into two partitions.
#[tokio::test]
async fn a_key_has_the_partition_that_clients_on_the_jvm_choose() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let mut stage = Stage::of([sink(|config| config).route(Route::to(&topic)).registration("kafka")]).await;
    let events = PARTITIONS_OF_THE_JVM.map(|(key, _)| (key.to_owned(), "1".to_owned()));
    stage.schedule("order.placed", events).await;
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    for (key, partition) in PARTITIONS_OF_THE_JVM {
        assert_eq!(content.partitions_of(key), [partition].into(), "{key}");
    }
    stage.end().await;
}
