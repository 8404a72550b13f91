//! Fallback handlers: the records they take, the failure they receive, and what follows.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use keylane::{
    Failure, FallbackHandler, HandlerError, Record, Registration, RetryPolicy, Signal,
    admin::{Filter, Status},
    handler::{FailureKind, GenericFallbackHandler},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    ledger::{Ledger, Placed, placed, run_of, typed},
    recorder::bounded,
    retrying::{failing, refused},
    stage::{Stage, until_count, until_empty},
    user::User,
};

pub(crate) type Told = (&'static str, Placed, Failure);

/// Lists its calls, and succeeds or fails.
pub(crate) struct Fallback {
    name: &'static str,
    told: UnboundedSender<Told>,
    error: Option<&'static str>,
}

impl Fallback {
    fn result(&self, event: Placed, failure: &Failure) -> Result<(), HandlerError> {
        self.told.send((self.name, event, failure.clone()))?;
        self.error.map_or(Ok(()), |error| Err(HandlerError::new(error)))
    }
}

impl FallbackHandler for Fallback {
    type Event = Placed;

    async fn handle(&self, event: Placed, failure: &Failure) -> Result<(), HandlerError> {
        self.result(event, failure)
    }
}

impl GenericFallbackHandler for Fallback {
    async fn handle(&self, record: &Record, failure: &Failure) -> Result<(), HandlerError> {
        self.result(serde_json::from_slice(&record.payload)?, failure)
    }
}

pub(crate) fn fallback(name: &'static str) -> (Fallback, UnboundedReceiver<Told>) {
    let (told, received) = unbounded_channel();
    (Fallback { name, told, error: None }, received)
}

pub(crate) async fn a_fallback_takes_over_what_is_spent<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (takes, mut received) = fallback("own");
    let nested = || HandlerError::new(std::io::Error::other("the bank is closed")).class("closed");
    let handlers = [failing(&ledger, 2, u32::MAX, nested), Registration::fallback("bookkeeper", takes)];
    let (outbox, running) = stage.run(handlers).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let (_, event, failure) = bounded("the fallback", received.recv()).await.unwrap();
    assert_eq!(event, placed("order-1", 2));
    assert_eq!((failure.attempts, failure.retries_exhausted), (3, true));
    assert_eq!((failure.error.as_str(), failure.class.as_deref()), ("the bank is closed", Some("closed")));
    assert_eq!(failure.kind, FailureKind::Error);
    assert_eq!((failure.delivery.key.as_str(), failure.delivery.attempt), ("order-1", 3));
    assert!(failure.since_scheduled >= Duration::from_millis(60), "two retries: {failure:?}");
    assert!(failure.last_attempt_took < failure.since_scheduled, "{failure:?}");
    // The record is completed, and its key goes on.
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [1, 3]);
    let of = |signal: &Signal| matches!(signal, Signal::FallbackTaken { .. });
    assert_eq!(stage.signals.count(of), 1);
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. })), 0);
    assert!(received.try_recv().is_err(), "it was called twice");
}

pub(crate) async fn the_default_takes_what_has_none_of_its_own<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (own, mut own_received) = fallback("own");
    let (default, mut default_received) = fallback("default");
    let fails = |id: &str| ledger.handler(id, |_, _| Err(HandlerError::permanent("no")));
    let handlers = [
        Registration::default_fallback(default),
        fails("bank"),
        fails("mail"),
        Registration::fallback("bank", own),
    ];
    let (outbox, running) = stage.run(handlers).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    let (_, _, failure) = bounded("the own one", own_received.recv()).await.unwrap();
    assert_eq!(failure.delivery.handler, "bank");
    let (_, _, failure) = bounded("the default", default_received.recv()).await.unwrap();
    assert_eq!(failure.delivery.handler, "mail");
    until_empty(&outbox).await;
    running.shutdown().await;
    assert!(own_received.try_recv().is_err() && default_received.try_recv().is_err());
}

pub(crate) async fn a_fallback_that_fails_leaves_the_record_failed<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (takes, mut received) = fallback("own");
    let takes = Fallback { error: Some("nobody at home"), ..takes };
    let handlers = [failing(&ledger, 1, u32::MAX, refused), Registration::fallback("bookkeeper", takes)];
    let (outbox, running) = stage.run(handlers).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    bounded("the fallback", received.recv()).await.unwrap();
    until_count(&outbox, Status::Failed, 1).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.attempts, 3);
    assert_eq!(failed.last_error.as_deref(), Some("refused; fallback: nobody at home"));
    assert!(stage.signals.failed().await.2, "its key is blocked");
    running.shutdown().await;
    assert!(ledger.done_of("order-1").is_empty());
}

/// A panic, a timeout, a payload that does not fit, a permanent error: each has its kind, at once.
pub(crate) async fn a_fallback_is_told_what_ended_the_attempt<T: User>(stage: &Stage<T>) {
    let (default, mut received) = fallback("default");
    let handler = typed("bookkeeper", |event: Placed, _| async move {
        match event.number {
            1 => panic!("out of luck"),
            2 => std::future::pending().await,
            _ => Err(HandlerError::permanent("no such account")),
        }
    });
    let handler = handler.retry(RetryPolicy::never()).timeout(Duration::from_millis(50));
    let (outbox, running) = stage.run([handler, Registration::default_fallback(default)]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let (_, event, failure) = bounded("the fallback", received.recv()).await.unwrap();
        kinds.push((event.number, failure.kind, failure.retries_exhausted, failure.error));
    }
    running.shutdown().await;
    assert_eq!(kinds[0], (1, FailureKind::Panic, true, "panicked: out of luck".to_owned()));
    assert_eq!(kinds[1], (2, FailureKind::Timeout, true, "no result within 50 ms".to_owned()));
    assert_eq!(kinds[2], (3, FailureKind::Error, false, "no such account".to_owned()));
}

pub(crate) async fn a_fallback_that_hangs_or_panics_has_failed<T: User>(stage: &Stage<T>) {
    struct Unlucky;
    impl FallbackHandler for Unlucky {
        type Event = Placed;

        async fn handle(&self, event: Placed, _: &Failure) -> Result<(), HandlerError> {
            match event.number {
                1 => panic!("out of luck, too"),
                _ => std::future::pending().await,
            }
        }
    }
    let ledger = Ledger::default();
    let fails = ledger.handler("bookkeeper", |_, _| Err(HandlerError::permanent("no")));
    let fails = fails.timeout(Duration::from_millis(50));
    let (outbox, running) = stage.run([fails, Registration::fallback("bookkeeper", Unlucky)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-2", 2)]).await;
    until_count(&outbox, Status::Failed, 2).await;
    running.shutdown().await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 2).await.unwrap();
    let errors: Vec<&str> = failed.iter().filter_map(|failed| failed.last_error.as_deref()).collect();
    assert_eq!(errors, ["no; fallback: panicked: out of luck, too", "no; fallback: no result within 50 ms"]);
}

/// A sink's dead letters behave in this way if the broker is unreachable, too.
pub(crate) async fn a_fallback_whose_target_is_away_is_called_again<T: User>(stage: &Stage<T>) {
    struct Away(UnboundedSender<u32>, AtomicU32);
    impl GenericFallbackHandler for Away {
        async fn handle(&self, _: &Record, failure: &Failure) -> Result<(), HandlerError> {
            self.0.send(failure.attempts)?;
            match self.1.fetch_add(1, Relaxed) {
                0 | 1 => Err(HandlerError::unavailable(Duration::from_millis(100))),
                _ => Ok(()),
            }
        }
    }
    let ledger = Ledger::default();
    let (told, mut received) = unbounded_channel();
    let handler = failing(&ledger, 1, u32::MAX, refused).with_fallback(Away(told, AtomicU32::new(0)));
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    for _ in 0..3 {
        let attempts = bounded("the fallback", received.recv()).await.unwrap();
        assert_eq!(attempts, 3, "what waits for the target of a fallback counts no attempt");
    }
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2], "its key has waited for it");
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::TargetUnavailable { .. })), 2);
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. })), 0);
}
