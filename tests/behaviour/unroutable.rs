//! Records without a handler in this build: they wait, cost nothing and are visible.

use std::time::Duration;

use keylane::{
    Delivery, Handler, HandlerError, Outbox, OutboxEvent, RecordTypes, Registration, Signal,
    admin::{Filter, Status, StopReason, StoppedLane},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{
    delivering::Tell,
    ledger::{Ledger, Step, placed, run_of},
    recorder::{bounded, eventually},
    stage::{Stage, until_count, until_empty},
    user::User,
};

fn is_unroutable(signal: &Signal) -> bool {
    matches!(signal, Signal::Unroutable { .. })
}

/// Waits for the one stopped lane, with `held` records held behind it.
async fn the_lane<T: User>(outbox: &Outbox<T::Db>, held: u64) -> StoppedLane {
    eventually("the unroutable lane", async || {
        let mut lanes = outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
        lanes.retain(|lane| lane.held == held && lane.reason == StopReason::Unroutable);
        lanes.pop()
    })
    .await
}

/// Another program publishes the handler `mail`, and stops.
async fn publish_mail<T: User>(stage: &Stage<T>) {
    let (_, running) = stage.run([Ledger::default().keeper("mail")]).await;
    assert!(running.shutdown().await.graceful);
}

pub(crate) async fn a_record_of_an_unknown_handler_waits_and_counts_no_attempt<T: User>(stage: &Stage<T>) {
    publish_mail(stage).await;
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let (record, lane, record_type) = stage
        .signals
        .first("the alarm", |signal| match signal {
            Signal::Unroutable { record, lane, record_type } => {
                Some((*record, lane.clone(), record_type.clone()))
            }
            _ => None,
        })
        .await;
    assert_eq!((lane.handler.as_str(), record_type.as_str()), ("mail", "order.placed"));
    // Records with a handler in this build go on.
    ledger.until_done(3).await;
    let stopped = the_lane::<T>(&outbox, 2).await;
    assert_eq!((stopped.record, stopped.attempts, stopped.last_error), (record, 0, None));
    assert_eq!(stopped.lane, lane);
    assert_eq!(outbox.admin().counts().await.unwrap().of(Status::Failed), 0);
    // The lane is fetched repeatedly, but reported only once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    running.shutdown().await;
    assert_eq!(stage.signals.count(is_unroutable), 1);
}

pub(crate) async fn an_instance_that_knows_the_handler_takes_the_lane_up<T: User>(stage: &Stage<T>) {
    publish_mail(stage).await;
    let (old, new) = (Ledger::default(), Ledger::default());
    let (first, running) = stage.run([old.keeper("bookkeeper")]).await;
    stage.schedule(&first, &run_of("order-1", 5)).await;
    old.until_done(5).await;
    the_lane::<T>(&first, 4).await;
    let (second, joined) = stage.run([new.keeper("bookkeeper"), new.keeper("mail")]).await;
    running.shutdown().await;
    new.until_done(5).await;
    stage.schedule(&second, &[placed("order-1", 6)]).await;
    new.until(Step::Done, None, 7).await;
    until_empty(&second).await;
    joined.shutdown().await;
    let mail = new.steps(Step::Done).into_iter().filter(|entry| entry.delivery.handler == "mail");
    let mail: Vec<(u32, u32)> = mail.map(|entry| (entry.event.number, entry.delivery.attempt)).collect();
    assert_eq!(mail, [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)]);
    assert!(second.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty());
}

/// The handler's id is known, but this build's handler takes other types: the record is unroutable, and
/// reported once.
pub(crate) async fn a_type_that_its_handler_does_not_know_waits<T: User>(stage: &Stage<T>) {
    publish_mail(stage).await;
    let (told, mut received) = unbounded_channel();
    let takes = RecordTypes::types(["order.cancelled"]);
    let (outbox, running) = stage.run([Registration::generic("mail", takes, Tell(told))]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    the_lane::<T>(&outbox, 2).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    until_count(&outbox, Status::Held, 3).await;
    assert!(received.try_recv().is_err());
    running.shutdown().await;
    let alarms = stage.signals.count(is_unroutable);
    assert!(alarms == 1, "{alarms} alarms: each poll takes the lane up and puts it down again");
    // A build whose handler takes the type.
    let ledger = Ledger::default();
    let (again, running) = stage.run([ledger.keeper("mail")]).await;
    ledger.until_done(3).await;
    until_empty(&again).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 3);
}

pub(crate) async fn unroutable_records_of_many_keys_cost_the_others_nothing<T: User>(stage: &Stage<T>) {
    publish_mail(stage).await;
    let (told, mut received) = unbounded_channel();
    let takes = RecordTypes::types(["order.placed"]);
    let (outbox, running) = stage.run([Registration::generic("bookkeeper", takes, Tell(told))]).await;
    let events: Vec<_> = (0..300).map(|key| placed(&format!("order-{key}"), 1)).collect();
    stage.schedule(&outbox, &events).await;
    for _ in 0..300 {
        bounded("each of them", received.recv()).await.unwrap();
    }
    until_count(&outbox, Status::Held, 300).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(stage.signals.count(is_unroutable), 300);
}

/// The order event of a later build: `number` has become `quantity`.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "{key}", version = 2, upcast = renamed)]
struct Ordered {
    key: String,
    quantity: u32,
}

fn renamed(from: u32, mut payload: serde_json::Value) -> Result<serde_json::Value, String> {
    let number = payload.get_mut("number").map(serde_json::Value::take);
    payload["quantity"] = number.ok_or_else(|| format!("version {from} without a number"))?;
    Ok(payload)
}

/// A handler of the later build.
struct Later(UnboundedSender<(String, u32, u32)>);

impl Handler for Later {
    type Event = Ordered;

    async fn handle(&self, event: Ordered, delivery: &Delivery) -> Result<(), HandlerError> {
        Ok(self.0.send((event.key, event.quantity, delivery.attempt))?)
    }
}

/// A rolling deploy: the first instance has the earlier build, the second the later one.
pub(crate) async fn a_payload_of_a_later_version_waits_for_a_build_that_reads_it<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let earlier = Ledger::default();
    let (outbox, running) = stage.run([earlier.keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let later = Ordered { key: "order-1".to_owned(), quantity: 7 };
    outbox.schedule(&mut work, &later).await.unwrap();
    outbox.schedule_all(&mut work, &[placed("order-1", 8), placed("order-2", 9)]).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let error = stage
        .signals
        .first("the alarm", |signal| match signal {
            Signal::Undecodable { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
    let stopped = the_lane::<T>(&outbox, 1).await;
    assert_eq!((stopped.attempts, &*stopped.lane.key), (0, "order-1"));
    // The other key goes on, and so does this one once the later build runs.
    earlier.until_done(1).await;
    let (second, joined) = stage.run([Registration::typed("bookkeeper", Later(told))]).await;
    running.shutdown().await;
    for expected in [("order-1".to_owned(), 7, 1), ("order-1".to_owned(), 8, 1)] {
        assert_eq!(bounded("the record", received.recv()).await.unwrap(), expected);
    }
    until_empty(&second).await;
    joined.shutdown().await;
    let told = stage.signals.count(|signal| matches!(signal, Signal::Undecodable { .. }));
    assert_eq!(told, 1, "it is left once, and not tried again and again");
}
