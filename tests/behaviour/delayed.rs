//! Delayed events: never early by the database's clock, and no other record waits for them.

use std::time::{Duration, SystemTime};

use keylane::{ScheduleOptions, admin::Status};
use tokio::time::Instant;

use crate::{
    ledger::{Ledger, Step, placed},
    stage::{Stage, until_count, until_empty},
    user::User,
};

const LATER: Duration = Duration::from_millis(700);

/// A busy machine may deliver the event that is due at once after the time of the other. Then the case begins again,
/// with more time.
pub(crate) async fn a_delayed_event_is_not_early_and_holds_nothing_back<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let mut in_time = false;
    for (round, later) in (0_usize..).zip([LATER, 10 * LATER, 100 * LATER]) {
        let (delayed, at_once) = (2 * round as u32 + 1, 2 * round as u32 + 2);
        let scheduled_at = Instant::now();
        let mut work = T::begin(&stage.pool).await;
        outbox.schedule_after(&mut work, &placed("order-1", delayed), later).await.unwrap();
        outbox.schedule(&mut work, &placed("order-1", at_once)).await.unwrap();
        T::commit(work).await;
        outbox.wake();
        ledger.until_done(2 * round + 1).await;
        in_time = scheduled_at.elapsed() < later;
        if in_time {
            assert_eq!(ledger.done_of("order-1")[2 * round..], [at_once], "the later one does not wait");
        }
        ledger.until_done(2 * round + 2).await;
        let began = ledger.steps(Step::Began).into_iter().find(|entry| entry.event.number == delayed);
        let began = began.expect("it is done");
        assert!(began.at - scheduled_at >= later, "early: {:?}", began.at - scheduled_at);
        assert!(began.delivery.attempt == 1 && began.delivery.age >= later, "{:?}", began.delivery.age);
        if in_time {
            break;
        }
    }
    assert!(in_time, "the event that is due at once takes longer than {:?}", 100 * LATER);
    until_empty(&outbox).await;
    running.shutdown().await;
}

pub(crate) async fn an_event_for_a_time_is_not_early<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let time = SystemTime::now() + LATER;
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule_at(&mut work, &placed("order-1", 1), time).await.unwrap();
    outbox.schedule_at(&mut work, &placed("order-2", 1), SystemTime::now() - LATER).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    ledger.until(Step::Began, Some("order-1"), 1).await;
    // The servers of the tests run on this machine, so they have the same clock.
    assert!(SystemTime::now() >= time, "early");
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    running.shutdown().await;
}

pub(crate) async fn a_delayed_event_survives_a_restart<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().after(LATER).header("kind", "reminder");
    outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.unwrap();
    T::commit(work).await;
    until_count(&outbox, Status::Delayed, 1).await;
    assert!(running.shutdown().await.graceful);
    let (again, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    ledger.until_done(1).await;
    assert_eq!(ledger.all()[0].delivery.headers["kind"], "reminder");
    until_empty(&again).await;
    running.shutdown().await;
}

pub(crate) async fn many_that_are_due_at_once_are_all_delivered<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.delivery.batch_size = 20;
    config.delivery.max_in_flight = 40;
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let mut work = T::begin(&stage.pool).await;
    for key in 0..200 {
        let event = placed(&format!("order-{key}"), 1);
        outbox.schedule_after(&mut work, &event, Duration::from_millis(200)).await.unwrap();
    }
    T::commit(work).await;
    ledger.until_done(200).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 200);
}

/// More records are due at once than a fetch brings: the next fetch follows at once, not at the next poll.
#[tokio::test(start_paused = true)]
async fn what_is_due_does_not_wait_for_the_next_poll() {
    let mut stage = crate::leases::Paused::new();
    stage.config.delivery.poll_interval = Duration::from_secs(60);
    (stage.config.delivery.batch_size, stage.config.delivery.max_in_flight) = (100, 400);
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let due = |key: u32| placed(&format!("key-{key}"), 1);
    outbox
        .transaction(async |tx| {
            for key in 0..1_000 {
                outbox.schedule_after(tx, &due(key), Duration::from_secs(1)).await?;
            }
            Ok::<_, keylane::ScheduleError>(())
        })
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(70)).await;
    ledger.until_done(1_000).await;
    running.shutdown().await;
    let done = ledger.steps(crate::ledger::Step::Done);
    let took = done[999].at - done[0].at;
    assert!(took < Duration::from_secs(5), "the last came {took:?} after the first");
}
