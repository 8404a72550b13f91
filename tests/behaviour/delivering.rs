//! The main path: schedule in a transaction, deliver once to each handler that takes the type.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use keylane::{
    GenericHandler, HandlerError, Record, RecordTypes, Registration, RetryPolicy, ScheduleError,
    ScheduleOptions, TransactionError,
    admin::{Filter, StopReason},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{
    ledger::{Cancelled, Ledger, Placed, Step, dealt, placed, run_of, typed},
    recorder::bounded,
    stage::{Stage, until_empty},
    user::User,
};

type Headers = BTreeMap<String, String>;

/// A generic handler that sends its records to the test.
pub(crate) struct Tell(pub(crate) UnboundedSender<Record>);

impl GenericHandler for Tell {
    async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
        Ok(self.0.send(record.clone())?)
    }
}

pub(crate) async fn an_event_is_delivered_once_with_all_that_is_known_of_it<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let handler = typed("bookkeeper", move |event, delivery| {
        let told = told.clone();
        async move { Ok(told.send((event, delivery))?) }
    });
    let (outbox, running) = stage.run([handler]).await;
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().header("tenant", "blue").trace_id("00-abc");
    let scheduled = outbox.schedule_with(&mut work, &placed("order-1", 7), options).await.unwrap();
    assert_eq!((scheduled.records, scheduled.duplicate), (1, false));
    T::commit(work).await;
    outbox.wake();

    let (event, delivery) = bounded("the event", received.recv()).await.unwrap();
    assert_eq!(event, placed("order-1", 7));
    assert_eq!(delivery.event_id, scheduled.event_id);
    assert_eq!(delivery.key, "order-1");
    assert_eq!(delivery.handler, "bookkeeper");
    assert_eq!(delivery.record_type, "order.placed");
    assert_eq!(delivery.content_type, "application/json");
    assert_eq!(delivery.partition.number(), 118);
    assert_eq!(delivery.generation.0, 1);
    assert_eq!(delivery.attempt, 1);
    assert_eq!(delivery.headers["tenant"], "blue");
    assert_eq!(delivery.trace_id(), Some("00-abc"));
    assert!(delivery.id > 0 && delivery.age < Duration::from_secs(120), "{delivery:?}");
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert!(received.try_recv().is_err(), "it was delivered twice");
}

tokio::task_local! {
    /// The headers of a request that is under way.
    static OF_REQUEST: Headers;
}

pub(crate) async fn headers_of_the_task_that_schedules_are_those_of_its_events<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let handler = Registration::generic("teller", RecordTypes::all(), Tell(told));
    let of_task = || OF_REQUEST.try_with(Clone::clone).unwrap_or_default();
    let builder = stage.builder().await.default_headers(of_task).handler(handler);
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let headers = [("trace_id", "of-task"), ("tenant", "of-task")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let event = placed("order-1", 1);
    let mut work = T::begin(&stage.pool).await;
    let scheduled = OF_REQUEST.scope(headers.into(), async {
        outbox.schedule(&mut work, &event).await.unwrap();
        let own = ScheduleOptions::new().header("tenant", "own");
        outbox.schedule_with(&mut work, &event, own).await.unwrap();
    });
    scheduled.await;
    outbox.schedule(&mut work, &event).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let delivery = bounded("a record", received.recv()).await.unwrap().delivery;
        let header = |name: &str| delivery.headers.get(name).cloned();
        seen.push((delivery.trace_id().map(str::to_owned), header("tenant")));
    }
    let text = |text: &str| Some(text.to_owned());
    let of_task = (text("of-task"), text("of-task"));
    assert_eq!(seen, [of_task, (text("of-task"), text("own")), (None, None)]);
    running.shutdown().await;
}

pub(crate) async fn a_rollback_delivers_nothing<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    outbox.schedule_all(&mut work, &run_of("order-2", 3)).await.unwrap();
    T::rollback(work).await;
    stage.schedule(&outbox, &[placed("order-1", 2), placed("order-2", 4)]).await;
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!((ledger.done_of("order-1"), ledger.done_of("order-2")), (vec![2], vec![4]));
}

pub(crate) async fn a_transaction_of_the_outbox_commits_and_wakes<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    // No poll comes before the end of the case.
    config.delivery.poll_interval = Duration::from_secs(600);
    let builder = stage.builder().await.config(config).handler(ledger.keeper("bookkeeper"));
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    for number in 1..=3 {
        let scheduled = outbox
            .transaction(async |tx| outbox.schedule(tx, &placed("order-1", number)).await)
            .await
            .unwrap();
        assert_eq!(scheduled.records, 1);
        ledger.until_done(number as usize).await;
    }
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 3);
}

pub(crate) async fn work_that_fails_is_rolled_back<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    for _ in 0..8 {
        // More refusals than the pool has connections: no connection is lost.
        let refused = outbox
            .transaction(async |tx| {
                outbox.schedule(tx, &placed("order-1", 1)).await.unwrap();
                Err::<(), _>("out of stock")
            })
            .await
            .unwrap_err();
        assert!(matches!(refused, TransactionError::Work("out of stock")), "{refused:?}");
    }
    let empty = outbox.transaction(async |_| Ok::<_, Infallible>(7)).await.unwrap();
    assert_eq!(empty, 7);
    stage.schedule(&outbox, &[placed("order-1", 2)]).await;
    ledger.until_done(1).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2]);
}

pub(crate) async fn thousands_scheduled_at_once_are_delivered_in_order<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let events = dealt(30, 100);
    let mut work = T::begin(&stage.pool).await;
    let scheduled = outbox.schedule_all(&mut work, &events).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    assert_eq!(scheduled.len(), 3000);
    let mut ids: Vec<_> = scheduled.iter().map(|scheduled| scheduled.event_id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3000, "each event has an identity of its own");
    ledger.until_done(3000).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 3000);
}

pub(crate) async fn an_empty_list_schedules_nothing<T: User>(stage: &Stage<T>) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    assert!(outbox.schedule_all(&mut work, &[] as &[Placed]).await.unwrap().is_empty());
    T::commit(work).await;
    assert!(outbox.admin().counts().await.unwrap().records.is_empty());
}

pub(crate) async fn two_handlers_of_a_type_have_a_lane_each<T: User>(stage: &Stage<T>) {
    let (mail, bank) = (Ledger::default(), Ledger::default());
    let failing = bank
        .handler("bank", |_, _| Err("no answer".into_handler_error()))
        .retry(RetryPolicy::fixed(Duration::from_secs(60)));
    let (outbox, running) = stage.run([mail.keeper("mail"), failing]).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = outbox.schedule_all(&mut work, &run_of("order-1", 5)).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    assert!(scheduled.iter().all(|scheduled| scheduled.records == 2), "{scheduled:?}");
    // The failing handler does not hold back the other.
    mail.until_done(5).await;
    bank.until(Step::Failed, None, 1).await;
    let stopped = crate::recorder::eventually("the lane of the bank to stand still", async || {
        let lanes = outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
        lanes.first().filter(|lane| lane.held == 4).cloned()
    })
    .await;
    assert_eq!((stopped.lane.handler.as_str(), stopped.reason), ("bank", StopReason::Retrying));
    running.shutdown().await;
    assert_eq!(mail.assert_in_order(), 5);
    let ids = |ledger: &Ledger| ledger.all()[0].delivery.event_id;
    assert_eq!(ids(&mail), ids(&bank), "one event, one identity");
    assert_eq!(bank.steps(Step::Began).len(), 1);
}

/// Converts a text into an error, for tests that need no error type.
pub(crate) trait IntoHandlerError {
    fn into_handler_error(self) -> HandlerError;
}

impl IntoHandlerError for &'static str {
    fn into_handler_error(self) -> HandlerError {
        HandlerError::new(self)
    }
}

pub(crate) async fn a_generic_handler_takes_every_type<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let every = Registration::generic("audit", RecordTypes::all(), Tell(told));
    let (outbox, running) = stage.run([every, Ledger::default().keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    assert_eq!(outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap().records, 2);
    let cancelled = Cancelled { key: "order-1".to_owned() };
    assert_eq!(outbox.schedule(&mut work, &cancelled).await.unwrap().records, 1);
    T::commit(work).await;
    outbox.wake();
    let first = bounded("the first", received.recv()).await.unwrap();
    let second = bounded("the second", received.recv()).await.unwrap();
    assert_eq!(first.payload, br#"{"key":"order-1","number":1}"#);
    assert_eq!(first.delivery.record_type, "order.placed");
    assert_eq!(second.delivery.record_type, "order.cancelled");
    running.shutdown().await;
}

pub(crate) async fn a_generic_handler_takes_the_types_of_its_list<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let takes = RecordTypes::types(["order.cancelled", "order.returned"]);
    let (outbox, running) = stage.run([Registration::generic("stock", takes, Tell(told))]).await;
    let mut work = T::begin(&stage.pool).await;
    let refused = outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap_err();
    assert!(matches!(refused, ScheduleError::NoHandler { .. }), "{refused:?}");
    outbox.schedule(&mut work, &Cancelled { key: "order-1".to_owned() }).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let record = bounded("the record", received.recv()).await.unwrap();
    assert_eq!(record.delivery.record_type, "order.cancelled");
    running.shutdown().await;
    assert!(received.try_recv().is_err());
}

pub(crate) async fn a_raw_event_is_delivered_as_it_is<T: User>(stage: &Stage<T>) {
    let (told, mut received) = unbounded_channel();
    let takes = RecordTypes::types(["image.scanned"]);
    let (outbox, running) = stage.run([Registration::generic("archive", takes, Tell(told))]).await;
    let payload = vec![0, 159, 146, 150, 255];
    let event =
        keylane::RawEvent::new("image.scanned", "page 1 – \u{1f4c4}", payload).content_type("image/png");
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule_raw(&mut work, event.clone(), ScheduleOptions::new()).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let Record { delivery, payload } = bounded("the record", received.recv()).await.unwrap();
    assert_eq!(
        (payload, delivery.content_type.as_str(), delivery.key.as_str()),
        (event.payload, &*event.content_type, &*event.key)
    );
    running.shutdown().await;
}
