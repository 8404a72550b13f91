//! Cancelling events that are not due yet, as a user does.

use std::time::Duration;

use keylane::{ScheduleError, ScheduleOptions};

use crate::{
    ledger::{Ledger, placed},
    stage::{Stage, until_empty},
    user::User,
};

const LATER: Duration = Duration::from_millis(700);
/// The time of what is cancelled: a busy machine may cancel late. If it was not cancelled, the tables are not empty.
const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) async fn a_cancelled_event_is_not_delivered<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper"), ledger.keeper("mail")]).await;
    let mut work = T::begin(&stage.pool).await;
    let first = outbox.schedule_after(&mut work, &placed("order-1", 1), HOUR).await.unwrap();
    let options = |after| ScheduleOptions::new().after(after).dedup_key("reminder-1");
    outbox.schedule_with(&mut work, &placed("order-1", 2), options(HOUR)).await.unwrap();
    outbox.schedule_after(&mut work, &placed("order-1", 3), LATER).await.unwrap();
    T::commit(work).await;
    let mut work = T::begin(&stage.pool).await;
    assert_eq!(outbox.cancel(&mut work, "order-1", first.event_id).await.unwrap(), 2);
    assert_eq!(outbox.cancel_dedup_key(&mut work, "order-1", "reminder-1").await.unwrap(), 2);
    // The dedup key is free again: the reminder is postponed.
    let again = outbox.schedule_with(&mut work, &placed("order-1", 4), options(LATER)).await.unwrap();
    assert!(!again.duplicate);
    T::commit(work).await;
    ledger.until_done(4).await;
    until_empty(&outbox).await;
    let mut done = ledger.done_of("order-1");
    done.sort_unstable();
    assert_eq!(done, [3, 3, 4, 4]);
    let mut work = T::begin(&stage.pool).await;
    assert_eq!(outbox.cancel_dedup_key(&mut work, "order-1", "reminder-1").await.unwrap(), 0);
    let refused = outbox.cancel(&mut work, "", first.event_id).await.unwrap_err();
    assert!(matches!(refused, ScheduleError::EmptyKey), "{refused}");
    T::commit(work).await;
    running.shutdown().await;
}
