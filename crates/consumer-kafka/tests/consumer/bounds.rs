//! What a key or a topic that stands still may cost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::HandlerError;
use keylane_consumer::Consumer;

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, bounded, config, take},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_runs_only_so_far_ahead_of_a_key_that_stands_still() {
    let _shared = BROKER.read().await;
    let topic = broker::topic_of(1).await;
    let stuck = [("stuck".to_owned(), "stuck".to_owned(), "stuck".to_owned())];
    let others =
        (0..900).map(|number| (format!("key-{}", number % 7), format!("{number}"), number.to_string()));
    broker::send(&topic, stuck.into_iter().chain(others)).await;
    let is_stuck = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_stuck);
    let work = move |(key, _): Seen| {
        let fails = key == "stuck" && asked.load(SeqCst);
        async move { if fails { Err(HandlerError::unavailable(Duration::from_millis(100))) } else { Ok(()) } }
    };
    let (handler, mut seen) = Told::new(work.clone());
    let group = broker::unused_name();
    let consumer =
        Consumer::builder(config(&group).max_ahead(100)).topic(topic.as_str(), handler).start().unwrap();
    let ahead = take(&mut seen, 100).await;
    assert!(ahead.iter().all(|(key, _)| key != "stuck"));
    // What was on its way when the partition was paused comes, too; then nothing does.
    let mut more = 0;
    while tokio::time::timeout(Duration::from_millis(800), seen.recv()).await.is_ok() {
        more += 1;
    }
    assert!(more <= 600, "{more} more");
    assert_eq!(broker::committed(&topic, &group).await, 0);
    // The offset has not passed the message, so the next member begins with it.
    assert!(consumer.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 0);
    is_stuck.store(false, SeqCst);
    let (handler, mut seen) = Told::new(work);
    let consumer = Consumer::builder(config(&group)).topic(topic.as_str(), handler).start().unwrap();
    bounded(take(&mut seen, 901)).await;
    assert!(consumer.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 901);
}

/// Two topics. All calls of the first one stand still, while it has more messages than the memory takes.
async fn another_topic_goes_on(calls: usize, queue_bytes: usize, length: usize) {
    let _shared = BROKER.read().await;
    let (stuck, other) = (broker::topic_of(3).await, broker::topic_of(3).await);
    let message = |number: usize| (format!("key-{number}"), format!("{number}"), "x".repeat(length));
    broker::send(&stuck, (0..400).map(message)).await;
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (hangs, _) = Told::new(move |seen| {
        let _ = begins.send(seen);
        std::future::pending()
    });
    let (handler, mut seen) = Told::new(|_| async { Ok(()) });
    let config = config(&broker::unused_name())
        .concurrency(calls)
        .queue_bytes(queue_bytes)
        .handler_timeout(Duration::from_secs(600))
        .drain_timeout(Duration::from_secs(1));
    let consumer = Consumer::builder(config)
        .topic(stuck.as_str(), hangs)
        .topic(other.as_str(), handler)
        .start()
        .unwrap();
    // The first topic has all calls that it gets before the second one has messages.
    take(&mut begun, calls - calls / 4).await;
    broker::send(&other, (0..100).map(message)).await;
    assert_eq!(take(&mut seen, 100).await.len(), 100);
    assert!(begun.try_recv().is_err(), "a quarter of the calls is left");
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_calls_stand_still_leaves_calls_to_the_others() {
    another_topic_goes_on(8, 32 << 20, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_calls_stand_still_leaves_memory_to_the_others() {
    another_topic_goes_on(8, 64 << 10, 1_000).await;
}
