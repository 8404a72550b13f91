//! The options of an event: dedup key, event id, headers.

use keylane::{Outbox, ScheduleOptions, Scheduled};
use uuid::Uuid;

use crate::{
    ledger::{Ledger, Step, placed},
    stage::{Stage, until_empty},
    user::User,
};

async fn with_key<T: User>(stage: &Stage<T>, outbox: &Outbox<T::Db>, number: u32, key: &str) -> Scheduled {
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().dedup_key(key);
    let scheduled = outbox.schedule_with(&mut work, &placed("order-1", number), options).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    scheduled
}

pub(crate) async fn a_dedup_key_schedules_once<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let first = with_key(stage, &outbox, 1, "request-7").await;
    assert_eq!((first.records, first.duplicate), (1, false));
    ledger.until_done(1).await;
    until_empty(&outbox).await;
    // The event was delivered or not, and the second call comes from the same process or another.
    let other = stage.outbox([]).await;
    let again = with_key(stage, &other, 2, "request-7").await;
    assert_eq!((again.records, again.duplicate), (0, true));
    let another = with_key(stage, &other, 3, "request-8").await;
    assert!(!another.duplicate);
    outbox.wake();
    ledger.until_done(2).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [1, 3]);
}

pub(crate) async fn a_dedup_key_that_was_rolled_back_was_not_used<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let options = || ScheduleOptions::new().dedup_key("request-7");
    assert!(!outbox.schedule_with(&mut work, &placed("order-1", 1), options()).await.unwrap().duplicate);
    let twice = outbox.schedule_with(&mut work, &placed("order-1", 2), options()).await.unwrap();
    assert_eq!((twice.records, twice.duplicate), (0, true), "in one transaction, too");
    T::rollback(work).await;
    assert!(!with_key(stage, &outbox, 3, "request-7").await.duplicate);
    ledger.until_done(1).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [3]);
}

pub(crate) async fn an_event_id_that_is_given_is_kept<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper"), ledger.keeper("mail")]).await;
    let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().event_id(id);
    let scheduled = outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    assert_eq!(scheduled.event_id, id);
    ledger.until_done(2).await;
    running.shutdown().await;
    assert!(ledger.steps(Step::Done).iter().all(|entry| entry.delivery.event_id == id));
}

pub(crate) async fn headers_go_to_every_handler_as_given<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper"), ledger.keeper("mail")]).await;
    let value = "quotes \" and ' and \\, a line\nand a NUL \0, \u{1f4e6}";
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().header("a", value).header("", "").header("b", "1").header("b", "2");
    outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    ledger.until_done(2).await;
    running.shutdown().await;
    for entry in ledger.steps(Step::Done) {
        let headers: Vec<(&str, &str)> =
            entry.delivery.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("", ""), ("a", value), ("b", "2")]);
        assert_eq!(entry.delivery.trace_id(), None);
    }
}
