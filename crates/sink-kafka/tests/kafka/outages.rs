//! A broker that goes away in the middle and comes back.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use keylane::{GenericHandler, HandlerError, Record, RecordTypes, Registration, Signal};
use keylane_kafka::Route;
use rdkafka::Message as _;
use tokio::{
    process::Command,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

use crate::{
    away::{self, Away, BROKER, Broker},
    broker,
    stage::{Stage, bounded, in_turns, numbers, sink},
};

/// Stands for every other handler of the process.
struct Audit(UnboundedSender<()>);

impl GenericHandler for Audit {
    async fn handle(&self, _: &Record) -> Result<(), HandlerError> {
        let _ = self.0.send(());
        Ok(())
    }
}

fn is_away(signal: &Signal) -> bool {
    matches!(signal, Signal::TargetUnavailable { .. })
}

/// Every record is there, each key in order, and no attempt has counted. Every message has the event id and the trace
/// that its record was scheduled with, a repeated one too: consumers drop repetitions by the event id. Returns how many
/// messages of the topic repeat an earlier one.
async fn check(stage: Stage, topic: &str, records: usize) -> usize {
    let content = broker::read(topic).await;
    for key in (0..20).map(|key| format!("key-{key}")) {
        let (found, wanted) = (content.first_occurrences(&key), numbers(records));
        let right = found.iter().zip(&wanted).take_while(|(found, wanted)| found == wanted).count();
        assert!(found == wanted, "{key}: {} of {records}, the first {right} as they should be", found.len());
    }
    let mut event_ids = BTreeSet::new();
    for message in content.messages() {
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let (key, body) = (text(message.key()), text(message.payload()));
        let (headers, identity) = (broker::headers(message), stage.identity(["order.placed", &key, &body]));
        assert_eq!(headers["attempt"], "1", "{key}: {body}");
        assert_eq!(headers["ce_id"], identity.event_id, "{key}: {body}");
        for trace in ["ce_traceparent", "traceparent"] {
            assert_eq!(headers[trace], identity.traceparent, "{key}: {body}");
        }
        event_ids.insert(identity.event_id);
    }
    assert_eq!(event_ids.len(), 20 * records);
    stage.end_without_failure().await;
    content.messages().count() - 20 * records
}

fn route(topic: &str) -> Route {
    let attempt = |record: &Record| record.delivery.attempt.to_string();
    Route::to(topic).events(["order.placed"]).header_by("attempt", attempt)
}

/// `flock` stands for another program of tests.
#[tokio::test]
async fn who_stops_the_broker_has_it_alone_among_all_programs() {
    let is_had = async |how: &str| {
        let lock = Command::new("flock").args(["--nonblock", how]).arg(Broker::path()).arg("true").status();
        lock.await.unwrap().success()
    };
    let alone = BROKER.write().await;
    assert!(!is_had("--shared").await, "another program uses a broker that is stopped");
    drop(alone);
    let _shared = BROKER.read().await;
    assert!(is_had("--shared").await, "programs that do not stop it use it together");
    assert!(!is_had("--exclusive").await, "another program stops a broker that is used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_costs_no_record_no_order_and_no_attempt() {
    let _alone = BROKER.write().await;
    let topic = broker::topic(&[]).await;
    let (audit, mut audited) = unbounded_channel();
    let kafka =
        sink(|config| config.patience(Duration::from_secs(2))).route(route(&topic)).registration("kafka");
    let audit = Registration::generic("audit", RecordTypes::types(["audit"]), Audit(audit));
    let mut stage = Stage::of([kafka, audit]).await;
    stage.schedule("order.placed", in_turns(20, 0, 250)).await;
    stage.until_settled(500).await;
    let away = Away::kill().await;
    stage.schedule("order.placed", in_turns(20, 250, 500)).await;
    stage.until(is_away).await;

    // Other handlers go on meanwhile.
    stage.schedule("audit", in_turns(20, 0, 100)).await;
    for _ in 0..2000 {
        bounded(audited.recv()).await;
    }
    away.end().await;
    stage.until_idle().await;
    check(stage, &topic, 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_broker_repeats_messages_and_swaps_none() {
    let _alone = BROKER.write().await;
    let topic = broker::topic(&[]).await;
    let calls = AtomicU32::new(0);
    let sink = sink(|config| config.patience(Duration::from_secs(1)));
    let mut stage = Stage::of([sink.route(route(&topic)).registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(20, 0, 100)).await;
    stage.until_settled(200).await;
    let frozen = tokio::spawn(async { away::service(&["pause", "kafka", "5"]).await });
    stage.schedule("order.placed", in_turns(20, 100, 400)).await;
    stage.until(|signal| is_away(signal) && calls.fetch_add(1, Relaxed) == 0).await;
    frozen.await.unwrap();
    stage.until_idle().await;
    check(stage, &topic, 400).await;
}

/// What follows is printed: how long after each return of the broker records arrive again, and how many messages the
/// topic has more than once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_three_times_loses_and_swaps_nothing() {
    const EACH: usize = 5_000;
    let _alone = BROKER.write().await;
    let topic = broker::topic(&[]).await;
    let sink = sink(|config| config.patience(Duration::from_secs(2)));
    let mut stage = Stage::of([sink.route(route(&topic)).registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(20, 0, EACH)).await;
    for settled in [20_000, 45_000, 70_000] {
        stage.until_settled(settled).await;
        let away = Away::kill().await;
        stage.until(is_away).await;
        away.end().await;
        let back = tokio::time::Instant::now();
        stage.catch_up();
        let known = stage.settled();
        stage.until_settled(known + 1).await;
        println!("{settled} settled, killed, back, and on after {:?}", back.elapsed());
        assert!(back.elapsed() < Duration::from_secs(10));
    }
    stage.until_all_delivered().await;
    println!("{} repetitions in the topic", check(stage, &topic, EACH).await);
}
