//! Guards for transactional handlers: each call holds one, and clears up after a lost reply.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settler::resolve;
use crate::{
    handler::{HandlerError, States},
    instance::InstanceId,
    record::Record,
    store::{
        ErrorClass, Guard, Resolution, SETTLER_SLOT, Store, StoreError, Transacted as Ran, TransactionalRun,
    },
    telemetry::Observers,
    wake::Wake,
};

/// What became of the records of a transaction, with no doubt left.
pub(super) enum Transacted {
    Committed,
    Untried,
    Gone,
    Aborted(StoreError),
    Failed(HandlerError),
}

/// The guard rows of an instance's transactional handlers.
pub(crate) struct GuardPool {
    store: Arc<dyn Store>,
    observers: Observers,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Guard>>,
    /// Nudged when a guard was found closed: this instance has been evicted.
    evicted: Wake,
}

/// A guard in use. Dropped in the middle of a call, nobody knows what became of its transaction:
/// that is found out before the guard is used again.
struct Held {
    pool: Arc<GuardPool>,
    guard: Guard,
    in_doubt: bool,
    place: Option<OwnedSemaphorePermit>,
}

impl GuardPool {
    /// The guards of the slots after the settler's.
    pub(super) fn new(
        store: Arc<dyn Store>,
        observers: Observers,
        instance: InstanceId,
        size: usize,
        evicted: Wake,
    ) -> Self {
        let slots = (SETTLER_SLOT + 1..).take(size);
        let idle = slots.map(|slot| Guard { instance, slot, counter: 0 }).collect();
        Self { store, observers, places: Arc::new(Semaphore::new(size)), idle: Mutex::new(idle), evicted }
    }

    /// Runs a transactional handler under a guard of its own, if it still may once it has one.
    pub(super) async fn run(
        self: &Arc<Self>,
        call: &dyn TransactionalRun,
        records: &[&Record],
        states: &States,
        timeout: Duration,
        may_start: impl Fn() -> bool,
    ) -> Transacted {
        let Some(mut held) = self.hold().await else { return Transacted::Untried };
        // The wait for a guard may have been long.
        if !may_start() {
            return Transacted::Untried;
        }
        held.in_doubt = true;
        let ran = call.run(held.guard, records, states, timeout).await;
        let transacted = match ran {
            Ran::Committed => {
                held.guard = held.guard.moved();
                Transacted::Committed
            }
            Ran::Failed(error) => Transacted::Failed(error),
            Ran::Aborted(error) if is_by_handler(&error) => Transacted::Failed(HandlerError::new(error)),
            Ran::Aborted(error) => Transacted::Aborted(error),
            Ran::Fenced => held.resolve().await.into(),
            Ran::Unknown(error) => match held.resolve().await {
                Resolution::NotApplied if is_by_handler(&error) => {
                    Transacted::Failed(HandlerError::new(error))
                }
                resolution => resolution.into(),
            },
        };
        held.in_doubt = false;
        transacted
    }

    async fn hold(self: &Arc<Self>) -> Option<Held> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let guard = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Held { pool: Arc::clone(self), guard, in_doubt: false, place: Some(place) })
    }
}

impl From<Resolution> for Transacted {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Applied => Self::Committed,
            Resolution::NotApplied | Resolution::Closed => Self::Gone,
        }
    }
}

/// Whether the handler has left a transaction that cannot be committed: a deferred constraint, or a
/// statement whose error it did not pass on. Trying that again for nothing would never end.
fn is_by_handler(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate)
}

impl Held {
    async fn resolve(&mut self) -> Resolution {
        let resolution = resolve(&*self.pool.store, &self.pool.observers, self.guard).await;
        match resolution {
            Resolution::Applied => self.guard = self.guard.moved(),
            Resolution::NotApplied => self.guard = self.guard.raised(),
            Resolution::Closed => self.pool.evicted.nudge(),
        }
        resolution
    }

    fn give_back(&mut self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.guard);
        self.place = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.in_doubt {
            return self.give_back();
        }
        // Only inside a runtime can a call be cut off.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut held = Self {
                pool: Arc::clone(&self.pool),
                guard: self.guard,
                in_doubt: false,
                place: self.place.take(),
            };
            runtime.spawn(async move { held.resolve().await });
        }
    }
}
