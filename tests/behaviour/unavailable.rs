//! Targets of handlers that are away: how long records wait for them, and who is told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    HandlerError, RetryPolicy, Signal,
    admin::{Filter, Status},
    health::Degradation,
};

use crate::{
    health::{until_degraded, until_healthy},
    ledger::{Ledger, Step, placed, run_of},
    stage::{Stage, until_count, until_empty},
    user::User,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn an_unavailable_target_counts_no_attempt<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let calls = AtomicU32::new(0);
    let handler = ledger.handler("bookkeeper", move |_, _| match calls.fetch_add(1, SeqCst) {
        0..5 => Err(HandlerError::unavailable(millis(100))),
        _ => Ok(()),
    });
    let (outbox, running) = stage.run([handler.retry(RetryPolicy::never())]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    let attempts: Vec<(u32, u32)> =
        ledger.steps(Step::Began).iter().map(|entry| (entry.event.number, entry.delivery.attempt)).collect();
    assert_eq!(attempts, [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (2, 1), (3, 1)]);
    let told = stage.signals.picked(|signal| match signal {
        Signal::TargetUnavailable { delay, .. } => Some(*delay),
        _ => None,
    });
    assert_eq!(told, [millis(100); 5]);
}

pub(crate) async fn a_target_that_is_away_for_long_raises_an_alarm_until_it_is_back<T: User>(
    stage: &Stage<T>,
) {
    let (ledger, back) = (Ledger::default(), Arc::new(AtomicBool::new(false)));
    let is_back = Arc::clone(&back);
    let handler = ledger.handler("bookkeeper", move |_, _| match is_back.load(SeqCst) {
        false => Err(HandlerError::unavailable(millis(100))),
        true => Ok(()),
    });
    let policy = RetryPolicy::never().unavailable_alarm(millis(300));
    let (outbox, running) = stage.run([handler.retry(policy)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-2", 2)]).await;
    let is_away = |reason: &Degradation| matches!(reason, Degradation::TargetAway { handler, .. } if *handler == "bookkeeper");
    until_degraded(&running, is_away).await;
    assert!(running.health().ready, "other handlers go on");
    let alarm = |signal: &Signal| matches!(signal, Signal::TargetAway { .. });
    stage.signals.at_least(1, "the alarm", alarm).await;
    back.store(true, SeqCst);
    ledger.until_done(2).await;
    until_healthy(&running).await;
    // The health changes before the signal is given, so signals are counted once all calls have ended.
    running.shutdown().await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::TargetBack { .. })), 1);
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. })), 0);
}

pub(crate) async fn an_unavailable_target_counts_after_a_limit<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let handler = ledger.handler("bookkeeper", |_, _| Err(HandlerError::unavailable(millis(100))));
    let policy = RetryPolicy::never().max_unavailable(millis(500));
    let (outbox, running) = stage.run([handler.retry(policy)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.attempts, 1, "only the last one counts");
    assert_eq!(failed.last_error.as_deref(), Some("the target is unavailable"));
    assert!(ledger.steps(Step::Began).len() >= 2, "it was waited for");
}
