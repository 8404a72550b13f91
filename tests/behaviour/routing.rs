//! Producers know the handlers of other processes.

use keylane::{
    Delivery, GenericHandler, HandlerError, RawEvent, Record, RecordTypes, Registration, ScheduleError,
    ScheduleOptions, State, handlers, memory::Fault, outbox_handler,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{
    ledger::{Cancelled, Ledger, Placed, placed},
    recorder::{bounded, eventually},
    stage::{Stage, until_empty},
    target::MemoryTarget,
    user::User,
};

pub(crate) async fn a_process_without_handlers_schedules_for_another<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let producer = stage.outbox([]).await;
    let mut work = T::begin(&stage.pool).await;
    let refused = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("order.placed") && text.contains("nothing was scheduled"), "{text}");
    T::rollback(work).await;

    let (consumer, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    stage.schedule(&producer, &[placed("order-1", 1), placed("order-1", 2)]).await;
    ledger.until_done(2).await;
    until_empty(&consumer).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 2);
}

pub(crate) async fn a_handler_of_a_pattern_is_given_what_is_of_it<T: User>(stage: &Stage<T>) {
    let (tell, mut told) = unbounded_channel();
    let handler = |id: &str, types: RecordTypes| Registration::generic(id, types, Tell(tell.clone()));
    let handlers = [
        handler("orders", RecordTypes::types(["order.*", "order.placed"])),
        handler("placed", RecordTypes::types(["*.placed"])),
        handler("refunds", RecordTypes::types(["refund.*"])),
    ];
    let producer = stage.outbox([]).await;
    let (_outbox, running) = stage.run(handlers).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    assert_eq!(scheduled.records, 2, "a handler that is listed twice has one record");
    let cancelled = Cancelled { key: "order-2".to_owned() };
    assert_eq!(producer.schedule(&mut work, &cancelled).await.unwrap().records, 1);
    let other = RawEvent::new("invoice.sent", "order-3", "{}");
    let refused = producer.schedule_raw(&mut work, other, ScheduleOptions::new()).await.unwrap_err();
    assert!(refused.to_string().contains("invoice.sent"), "{refused}");
    T::commit(work).await;
    producer.wake();
    let mut given = Vec::new();
    for _ in 0..3 {
        given.push(bounded("a record", told.recv()).await.unwrap());
    }
    given.sort_unstable();
    let expected = [("orders", "order.cancelled"), ("orders", "order.placed"), ("placed", "order.placed")];
    assert_eq!(given, expected.map(|(handler, record_type)| (handler.to_owned(), record_type.to_owned())));
    running.shutdown().await;
}

/// Sends the handler and the record type of each call.
struct Tell(UnboundedSender<(String, String)>);

impl GenericHandler for Tell {
    async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
        let delivery = &record.delivery;
        Ok(self.0.send((delivery.handler.to_string(), delivery.record_type.to_string()))?)
    }
}

/// The process itself has a handler of the type, so its own list is never empty.
pub(crate) async fn the_first_event_goes_to_the_handlers_of_others_too<T: User>(stage: &Stage<T>) {
    let (own, other) = (Ledger::default(), Ledger::default());
    let (_outbox, running) = stage.run([other.keeper("mail")]).await;
    let producer = stage.outbox([own.keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    T::commit(work).await;
    assert_eq!(scheduled.records, 2, "one for its own handler, one for that of the other process");
    other.until_done(1).await;
    running.shutdown().await;
}

pub(crate) async fn a_list_that_is_too_old_is_read_again<T: User>(stage: &Stage<T>) {
    let mut config = stage.config.clone();
    config.schedule.route_refresh = std::time::Duration::from_millis(1);
    let builder = stage.builder().await.config(config).handler(Ledger::default().keeper("bookkeeper"));
    let producer = builder.build().await.unwrap();
    stage.schedule(&producer, &[placed("order-1", 1)]).await;
    let (_outbox, running) = stage.run([Ledger::default().keeper("mail")]).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = producer.schedule(&mut work, &placed("order-1", 2)).await.unwrap();
    T::commit(work).await;
    assert_eq!(scheduled.records, 2, "the list was older than it may be");
    running.shutdown().await;
}

/// A process that runs workers does not wait for `route_refresh`: its polls tell that the list has changed.
pub(crate) async fn workers_learn_of_new_handlers_by_their_polls<T: User>(stage: &Stage<T>) {
    let mut config = stage.config.clone();
    config.schedule.route_refresh = std::time::Duration::from_secs(3600);
    let builder = stage.builder().await.config(config).handler(Ledger::default().keeper("bookkeeper"));
    let old = builder.build().await.unwrap();
    let running = old.start().await.unwrap();
    let schedule = async || {
        let mut work = T::begin(&stage.pool).await;
        let scheduled = old.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
        T::rollback(work).await;
        scheduled.records
    };
    assert_eq!(schedule().await, 1);
    let (_new, new_running) = stage.run([Ledger::default().keeper("mail")]).await;
    eventually("an event of the old process goes to the new handler", async || {
        (schedule().await == 2).then_some(())
    })
    .await;
    new_running.shutdown().await;
    running.shutdown().await;
}

/// A process of the new build knows its own handlers without any list.
pub(crate) async fn a_new_build_schedules_for_its_handlers_before_its_start<T: User>(stage: &Stage<T>) {
    let (_old, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    let new = stage.outbox(["bookkeeper", "mail"].map(|id| Ledger::default().keeper(id))).await;
    let mut work = T::begin(&stage.pool).await;
    assert_eq!(new.schedule(&mut work, &placed("order-1", 1)).await.unwrap().records, 2);
    T::rollback(work).await;
    running.shutdown().await;
}

/// Each event that is scheduled around the start of a new build goes to all handlers of the build or to none.
pub(crate) async fn producers_meet_all_new_handlers_or_none<T: User>(stage: &Stage<T>) {
    const NEW: usize = 12;
    let mut config = stage.config.clone();
    config.schedule.route_refresh = std::time::Duration::from_millis(1);
    let old = Ledger::default();
    let (_old, old_running) = stage.run([old.keeper("bookkeeper")]).await;
    let producer = stage.builder().await.config(config).build().await.unwrap();
    let ledgers: Vec<Ledger> = (0..NEW).map(|_| Ledger::default()).collect();
    let names: Vec<&'static str> = (0..NEW).map(|n| format!("mail-{n}").leak() as &str).collect();
    let keepers = ledgers.iter().zip(&names).map(|(ledger, name)| ledger.keeper(name));
    let new = stage.outbox(keepers.chain([old.keeper("bookkeeper")])).await;
    let mut reached = Vec::new();
    let produce = async {
        // The loop ends once some events after the start have gone to the new handlers.
        while reached.iter().filter(|records| **records > 1).count() < 5 {
            let mut work = T::begin(&stage.pool).await;
            let scheduled =
                producer.schedule(&mut work, &placed("order-1", 1 + reached.len() as u32)).await.unwrap();
            T::commit(work).await;
            reached.push(scheduled.records);
        }
    };
    let (running, ()) = tokio::join!(new.start(), produce);
    assert!(reached.iter().all(|records| [1, 1 + NEW].contains(records)), "{reached:?}");
    let met = reached.iter().filter(|records| **records > 1).count();
    // A process of the old build does not call the new handlers.
    old_running.shutdown().await;
    for ledger in &ledgers {
        ledger.until_done(met).await;
    }
    old.until_done(reached.len()).await;
    running.unwrap().shutdown().await;
}

/// If the list cannot be read, a process with its own handler does not assume that there are no others.
#[tokio::test]
async fn a_list_that_was_never_read_is_an_error() {
    let stage = Stage::<MemoryTarget>::open().await.unwrap();
    let producer = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    stage.pool.fail_next("routes", 1, Fault::NotApplied);
    let mut work = MemoryTarget::begin(&stage.pool).await;
    let refused = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap_err();
    assert!(matches!(refused, ScheduleError::Store(_)), "{refused:?}");
    assert_eq!(producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap().records, 1);
}

pub(crate) async fn a_retired_handler_gets_nothing_more<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (old, running) = stage.run([ledger.keeper("bookkeeper"), ledger.keeper("mail")]).await;
    running.shutdown().await;
    assert!(old.admin().retire_handler("mail").await.unwrap());
    assert!(!old.admin().retire_handler("mail").await.unwrap());
    let producer = stage.outbox([]).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    T::commit(work).await;
    assert_eq!(scheduled.records, 1);
}

type Told = UnboundedSender<(&'static str, String, u32)>;

#[outbox_handler(id = "bookkeeper")]
async fn book(event: Placed, delivery: &Delivery, State(told): State<Told>) -> Result<(), HandlerError> {
    Ok(told.send(("book", event.key, delivery.attempt))?)
}

#[outbox_handler(id = "refunds", retry(fixed, delay = "20ms", max_retries = 1), timeout = "5s")]
async fn refund(event: Cancelled, delivery: &Delivery, State(told): State<Told>) -> Result<(), HandlerError> {
    told.send(("refund", event.key, delivery.attempt))?;
    if delivery.attempt == 1 { Err(HandlerError::new("the bank is closed")) } else { Ok(()) }
}

pub(crate) async fn handlers_of_the_macros_are_called<T: User>(stage: &Stage<T>) {
    let (told, mut received): (Told, _) = unbounded_channel();
    let builder = stage.builder().await.state(told).handlers(handlers![book, refund]);
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let mut calls = Vec::new();
    outbox
        .transaction(async |tx| {
            outbox.schedule(tx, &placed("order-1", 1)).await?;
            outbox.schedule(tx, &Cancelled { key: "order-2".to_owned() }).await
        })
        .await
        .unwrap();
    for _ in 0..3 {
        calls.push(bounded("a call", received.recv()).await.unwrap());
    }
    calls.sort();
    let order_2 = || "order-2".to_owned();
    assert_eq!(
        calls,
        [("book", "order-1".to_owned(), 1), ("refund", order_2(), 1), ("refund", order_2(), 2)]
    );
    until_empty(&outbox).await;
    running.shutdown().await;
}
