//! Dead letters that cannot be sent, and a crash between a dead letter and the commit.

use std::{
    env,
    process::Stdio,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use keylane::HandlerError;
use keylane_consumer::{Consumer, ConsumerConfig, Running};
use tokio::{
    process::Command,
    sync::{Semaphore, mpsc::UnboundedReceiver},
};

use crate::{
    away::{Away, BROKER},
    broker,
    log::Log,
    relay::Relay,
    stage::{Seen, Told, bounded, config, config_at, take},
};

/// Tells a process of this test binary what it is.
const WORKER: &str = "KEYLANE_CONSUMER_TEST_BURIER";

/// A key with poison before another message, and another key.
async fn send(topic: &str) {
    let message = |key: &str, body: &str| (key.to_owned(), format!("{key}-{body}"), body.to_owned());
    broker::send(topic, [message("bad", "poison"), message("bad", "after"), message("good", "other")]).await;
}

/// A member whose handler refuses poison as soon as there is a permit.
fn member(topic: &str, group: &str, dead: &str) -> (Running, UnboundedReceiver<Seen>, Arc<Semaphore>) {
    member_with(config(group), topic, dead)
}

fn member_with(
    config: ConsumerConfig,
    topic: &str,
    dead: &str,
) -> (Running, UnboundedReceiver<Seen>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let asked = Arc::clone(&gate);
    let (handler, seen) = Told::new(move |(_, body): Seen| {
        let asked = Arc::clone(&asked);
        async move {
            if body == "poison" {
                asked.acquire().await.unwrap().forget();
                return Err(HandlerError::permanent("no such account"));
            }
            Ok(())
        }
    });
    let config = config.handler_timeout(Duration::from_secs(120));
    (Consumer::builder(config).topic(topic, handler).dead_letters(dead).start().unwrap(), seen, gate)
}

/// Waits until the log says that a dead letter was not sent.
async fn until_refused(log: &Log) {
    let refused = async {
        while log.lines_with("a dead letter was not sent").is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded(refused).await;
}

/// The key goes on behind one dead letter.
async fn goes_on(running: Running, seen: &mut UnboundedReceiver<Seen>, topic: &str, group: &str, dead: &str) {
    let (after, other) = (("bad".to_owned(), "after".to_owned()), ("good".to_owned(), "other".to_owned()));
    // What was not committed comes again to a member that lost its partition with the broker.
    let mut next = take(seen, 1).await.remove(0);
    while next == other {
        next = take(seen, 1).await.remove(0);
    }
    assert_eq!(next, after);
    bounded(broker::until_committed(topic, group, 3)).await;
    assert!(bounded(running.shutdown()).await.graceful);
    assert_eq!(broker::committed(topic, group).await, 3);
    let letters = broker::read(dead).await;
    assert!(!letters.is_empty(), "the message is lost");
    for letter in &letters {
        assert_eq!(broker::headers(letter)["keylane-event-id"], "bad-poison");
    }
}

#[tokio::test]
async fn without_the_topic_of_dead_letters_the_key_waits_until_it_is_there() {
    let _shared = BROKER.read().await;
    // The consumer works on this thread, too.
    let (log, _guard) = Log::begin();
    let (topic, dead, group) = (broker::topic_of(1).await, broker::unused_name(), broker::unused_name());
    send(&topic).await;
    let (running, mut seen, gate) = member(&topic, &group, &dead);
    // Before each letter the message is handled once more.
    gate.add_permits(100);
    assert_eq!(take(&mut seen, 1).await, [("good".to_owned(), "other".to_owned())]);
    until_refused(&log).await;
    assert!(seen.try_recv().is_err(), "a message has overtaken the one before it");
    assert_eq!(broker::committed(&topic, &group).await, 0);
    broker::shared_topic(&dead).await;
    goes_on(running, &mut seen, &topic, &group, &dead).await;
}

#[tokio::test]
async fn while_the_broker_is_away_no_dead_letter_is_lost_and_the_key_waits() {
    let _alone = BROKER.write().await;
    let (log, _guard) = Log::begin();
    let (topic, dead, group) = (broker::topic_of(1).await, broker::topic_of(1).await, broker::unused_name());
    send(&topic).await;
    let (running, mut seen, gate) = member(&topic, &group, &dead);
    // All are in memory when the broker goes.
    assert_eq!(take(&mut seen, 1).await, [("good".to_owned(), "other".to_owned())]);
    let away = Away::kill().await;
    gate.add_permits(1);
    until_refused(&log).await;
    assert!(seen.try_recv().is_err(), "a message has overtaken the one before it");
    away.end().await;
    // Before each letter the message is handled once more.
    gate.add_permits(100);
    goes_on(running, &mut seen, &topic, &group, &dead).await;
}

/// The producer of dead letters asks for its topic only now, and is told that there are no brokers.
#[tokio::test]
async fn a_producer_of_dead_letters_that_forgets_its_brokers_is_replaced() {
    let _shared = BROKER.read().await;
    let (log, _guard) = Log::begin();
    let (topic, dead, group) = (broker::topic_of(1).await, broker::topic_of(1).await, broker::unused_name());
    let relay = Arc::new(Relay::default());
    send(&topic).await;
    let config = config_at(Arc::clone(&relay).start().await, &group);
    let (running, mut seen, gate) = member_with(config, &topic, &dead);
    assert_eq!(take(&mut seen, 1).await, [("good".to_owned(), "other".to_owned())]);
    relay.denies.store(true, Relaxed);
    gate.add_permits(1);
    until_refused(&log).await;
    relay.denies.store(false, Relaxed);
    gate.add_permits(100);
    goes_on(running, &mut seen, &topic, &group, &dead).await;
}

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    let [topic, group, dead] = what.split(' ').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let (handler, _seen) = Told::new(async |(_, body): Seen| match &*body {
        "poison" => Err(HandlerError::permanent("no such account")),
        "elsewhere" => Ok(()),
        _ => std::future::pending().await,
    });
    let config = config(group).property("group.instance.id", "one");
    let _running = Consumer::builder(config).topic(topic, handler).dead_letters(dead).start().unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_dead_letter_and_commit_repeats_the_letter_and_loses_nothing() {
    let _shared = BROKER.read().await;
    let (topic, dead, group) = (broker::topic_of(2).await, broker::topic_of(1).await, broker::unused_name());
    let message = |key: &str, body: &str| (key.to_owned(), format!("id-of-{body}"), body.to_owned());
    // What comes first in the partition is not finished, so the offset cannot pass the poison of the other key.
    let messages = [("partition-0", "first"), ("partition-00", "poison"), ("partition-00", "after")];
    broker::send(&topic, messages.map(|(key, body)| message(key, body))).await;
    let mut worker = Command::new(env::current_exe().unwrap())
        .args(["--exact", "letters::worker", "--nocapture"])
        .env(WORKER, format!("{topic} {group} {dead}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let sent = async {
        while broker::read(&dead).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded(sent).await;
    // A commit after the dead letter has what the worker thinks finished, in both partitions.
    broker::send(&topic, [message("partition-1", "elsewhere")]).await;
    let committed = async {
        loop {
            match broker::committed(&topic, &group).await {
                0 => tokio::time::sleep(Duration::from_millis(100)).await,
                offsets => break offsets,
            }
        }
    };
    assert_eq!(bounded(committed).await, 1);
    worker.kill().await.unwrap();

    let (handler, mut seen) = Told::new(async |(_, body): Seen| match &*body {
        "poison" => Err(HandlerError::permanent("no such account")),
        _ => Ok(()),
    });
    let config = config(&group).property("group.instance.id", "one");
    let next = Consumer::builder(config).topic(topic.as_str(), handler).dead_letters(dead.as_str()).start();
    let mut bodies: Vec<String> = take(&mut seen, 2).await.into_iter().map(|(_, body)| body).collect();
    bodies.sort();
    assert_eq!(bodies, ["after", "first"]);
    assert!(bounded(next.unwrap().shutdown()).await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 4);
    let letters = broker::read(&dead).await;
    let ids: Vec<String> =
        letters.iter().map(|letter| broker::headers(letter)["keylane-event-id"].clone()).collect();
    assert_eq!(ids, ["id-of-poison", "id-of-poison"]);
}
