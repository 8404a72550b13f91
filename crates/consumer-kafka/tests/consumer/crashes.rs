//! Consumers that are killed while they consume.

use std::time::Duration;

use keylane_consumer::{Consumer, ConsumerBuilder};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::Instant,
};

use crate::{
    away::BROKER,
    broker,
    stage::{Affect, Effects, Seen, Worker, config, take},
};

const MESSAGES: usize = 200;
/// A member that comes back under its name need not wait until its group has missed the old one.
const NAMED: &str = "group.instance.id=one";
/// The shortest time that the broker allows.
const SESSION: Duration = Duration::from_secs(6);

/// A member with one more property of the client.
fn member(
    topic: &str,
    group: &str,
    effects: &Effects,
    property: &str,
) -> (ConsumerBuilder, UnboundedReceiver<Seen>) {
    let (called, seen) = unbounded_channel();
    let (name, value) = property.split_once('=').unwrap();
    let config = config(group).batch_size(5).concurrency(3).property(name, value);
    let handler = Affect { effects: effects.clone(), called };
    (Consumer::builder(config).transactional(topic, effects.inbox.clone(), handler), seen)
}

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Some([topic, dead, group, prefix, property]) = Worker::told() else { return };
    let (consumer, mut seen) = member(&topic, &group, &Effects::at(&prefix).await, &property);
    let _running = consumer.dead_letters(dead).start().unwrap();
    while seen.recv().await.is_some() {
        eprintln!("handled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_effect_happens_once_whatever_is_delivered_and_killed() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic().await, broker::topic_of(1).await);
    let (effects, group) = (Effects::new().await, broker::unused_name());
    // Each message three times: twice in a row, and again at the end.
    let id = |number: usize| format!("event-{number:03}");
    let of = |number: usize| {
        let body = if number == 77 { "poison" } else { "good" };
        (format!("key-{}", number % 20), id(number), body.to_owned())
    };
    let twice = (0..MESSAGES).flat_map(|number| [of(number), of(number)]);
    broker::send(&topic, twice.chain((0..MESSAGES).map(of))).await;
    for kill in 0..4 {
        let told = [&*topic, &dead, &group, &effects.prefix, NAMED];
        let mut worker = Worker::start("crashes::worker", &told);
        for _ in 0..if kill < 3 { 40 } else { 0 } {
            worker.says("handled").await;
        }
        // The last one goes on to the end.
        if kill == 3 {
            broker::until_committed(&topic, &group, 3 * MESSAGES).await;
        }
        worker.kill().await;
    }
    let expected: Vec<(String, i64)> =
        (0..MESSAGES).filter(|number| *number != 77).map(|n| (id(n), 1)).collect();
    assert_eq!(effects.counts().await, expected);
    let letters = broker::read(&dead).await;
    assert!(!letters.is_empty());
    for letter in &letters {
        let headers = broker::headers(letter);
        assert_eq!(
            (&*headers["keylane-event-id"], &*headers["keylane-error"]),
            ("event-077", "no such account")
        );
    }
    effects.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_member_without_a_name_is_missed_at_the_end_of_its_session() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic().await, broker::topic_of(1).await);
    let (effects, group) = (Effects::new().await, broker::unused_name());
    let id = |number: usize| format!("event-{number:03}");
    broker::send(&topic, (0..MESSAGES).map(|n| (format!("key-{}", n % 20), id(n), "good".to_owned()))).await;
    let session = format!("session.timeout.ms={}", SESSION.as_millis());
    let mut worker = Worker::start("crashes::worker", &[&*topic, &dead, &group, &effects.prefix, &session]);
    for _ in 0..40 {
        worker.says("handled").await;
    }
    worker.kill().await;
    let killed = Instant::now();
    let done = effects.counts().await.len();
    let (next, mut seen) = member(&topic, &group, &effects, &session);
    let next = next.dead_letters(dead).start().unwrap();
    take(&mut seen, 1).await;
    // Its last sign of life was half a second before its death, or somewhat more on a busy machine.
    assert!(killed.elapsed() > SESSION / 2, "{:?}", killed.elapsed());
    take(&mut seen, MESSAGES - done - 1).await;
    broker::until_committed(&topic, &group, MESSAGES).await;
    assert!(next.shutdown().await.graceful);
    assert!(seen.try_recv().is_err(), "a message was handled twice");
    assert_eq!(effects.counts().await, (0..MESSAGES).map(|n| (id(n), 1)).collect::<Vec<_>>());
    effects.end().await;
}
