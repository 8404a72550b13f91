//! Consumers that are killed while they consume.

use std::{env, process::Stdio};

use keylane_consumer::Consumer;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    sync::mpsc::unbounded_channel,
};

use crate::{
    away::BROKER,
    broker,
    stage::{Affect, Effects, bounded, config},
};

const MESSAGES: usize = 200;
/// Tells a process of this test binary what it is.
const WORKER: &str = "KEYLANE_CONSUMER_TEST_WORKER";

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    let [topic, dead, group, prefix] = what.split(' ').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let effects = Effects::at(prefix).await;
    let (called, mut seen) = unbounded_channel();
    // A member that comes back under its name need not wait until its group has missed the old one.
    let config = config(group).batch_size(5).concurrency(3).property("group.instance.id", "one");
    let handler = Affect { effects: effects.clone(), called };
    let consumer = Consumer::builder(config).transactional(topic, effects.inbox.clone(), handler);
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
        let mut worker = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crashes::worker", "--nocapture"])
            .env(WORKER, format!("{topic} {dead} {group} {}", effects.prefix))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines();
        let mut handled = 0;
        while kill < 3 && handled < 40 {
            let line = bounded(lines.next_line()).await.unwrap().expect("the worker goes on");
            handled += usize::from(line == "handled");
        }
        // The last one goes on to the end.
        while kill == 3 && broker::committed(&topic, &group).await < 3 * MESSAGES as i64 {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        worker.kill().await.unwrap();
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
