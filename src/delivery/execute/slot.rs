//! Fence rows for transactional handlers: each call holds one, and clears up after a lost reply.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    delivery::resolve::resolve,
    handler::HandlerError,
    store::{ErrorClass, FenceRow, Resolution, Store, StoreError, Transacted as Ran, TransactionalRun, Work},
    telemetry::Observers,
    wake::Wake,
};

/// Tries of a transaction that conflicts with others, and the pause before the second; each further one is
/// that much longer.
const CONFLICTS: u32 = 6;
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// What became of the records of a transaction, with no doubt left.
pub(super) enum Transacted {
    Committed,
    Untried,
    Lost,
    Aborted(StoreError),
    Failed(HandlerError),
}

/// The fence rows of an instance's transactional handlers.
pub(super) struct SlotPool {
    /// Never changes.
    store: Arc<dyn Store>,
    /// Never changes.
    observers: Observers,
    /// Fence rows that nobody uses. Taken by `slot`, given back by the drop of a slot.
    idle: Mutex<Vec<FenceRow>>,
    /// Nudged when a fence row comes back that no report tells of.
    freed: Wake,
    /// Nudged when a fence row was found closed: this instance has been evicted.
    evicted: Wake,
}

/// A fence row in use. Dropped in the middle of a call, nobody knows what became of its transaction:
/// that is found out before the fence row is used again.
pub(super) struct Slot {
    /// Where it goes back to.
    pool: Arc<SlotPool>,
    /// Moved on by each transaction and by `resolve`.
    fence: FenceRow,
    /// Nobody knows what became of its transaction. True while one is under way.
    in_doubt: bool,
}

impl SlotPool {
    /// The fence rows after the settler's.
    pub(super) fn new(
        store: Arc<dyn Store>,
        observers: Observers,
        settler: FenceRow,
        size: usize,
        freed: Wake,
        evicted: Wake,
    ) -> Self {
        let slots = (settler.slot + 1..).take(size);
        let idle = slots.map(|slot| FenceRow { slot, ..settler }).collect();
        Self { store, observers, idle: Mutex::new(idle), freed, evicted }
    }

    /// A fence row that nobody uses, if there is one.
    pub(super) fn slot(self: &Arc<Self>) -> Option<Slot> {
        let fence = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Slot { pool: Arc::clone(self), fence, in_doubt: false })
    }
}

impl Slot {
    /// Runs a transactional handler under this fence row. A conflict with other transactions is tried again at
    /// once; a handler that conflicts each time has failed.
    pub(super) async fn run(&mut self, call: &dyn TransactionalRun, work: &Work<'_>) -> Transacted {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.run_once(call, work).await {
                Transacted::Aborted(error) if error.class == ErrorClass::Retry => match tries < CONFLICTS {
                    true => tokio::time::sleep(CONFLICT_PAUSE * tries).await,
                    false => return Transacted::Failed(HandlerError::new(error)),
                },
                transacted => return transacted,
            }
        }
    }

    async fn run_once(&mut self, call: &dyn TransactionalRun, work: &Work<'_>) -> Transacted {
        self.in_doubt = true;
        let transacted = match call.run(self.fence, work).await {
            Ran::Committed => {
                self.fence = self.fence.moved();
                Transacted::Committed
            }
            Ran::Untried => Transacted::Untried,
            Ran::Failed(error) => Transacted::Failed(error),
            Ran::Aborted(error) if is_by_handler(&error) => Transacted::Failed(HandlerError::new(error)),
            Ran::Aborted(error) => Transacted::Aborted(error),
            Ran::Fenced => self.resolve().await.into(),
            Ran::Unknown(error) => match self.resolve().await {
                Resolution::NotApplied if is_by_handler(&error) => {
                    Transacted::Failed(HandlerError::new(error))
                }
                Resolution::NotApplied if error.class == ErrorClass::Retry => Transacted::Aborted(error),
                resolution => resolution.into(),
            },
        };
        self.in_doubt = false;
        transacted
    }

    async fn resolve(&mut self) -> Resolution {
        let resolution = resolve(&*self.pool.store, &self.pool.observers, self.fence).await;
        match resolution {
            Resolution::Applied => self.fence = self.fence.moved(),
            Resolution::NotApplied => self.fence = self.fence.invalidated(),
            Resolution::Closed => self.pool.evicted.nudge(),
        }
        resolution
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.in_doubt {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.fence);
            return;
        }
        // Only inside a runtime can a call be cut off.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut slot = Self { pool: Arc::clone(&self.pool), fence: self.fence, in_doubt: false };
            runtime.spawn(async move {
                slot.resolve().await;
                let pool = Arc::clone(&slot.pool);
                drop(slot);
                pool.freed.nudge();
            });
        }
    }
}

impl From<Resolution> for Transacted {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Applied => Self::Committed,
            Resolution::NotApplied | Resolution::Closed => Self::Lost,
        }
    }
}

/// Whether the handler has left a transaction that the database refuses to commit: a deferred constraint, a
/// trigger that raises, a statement whose error was not passed on. Trying that again for nothing would never end.
fn is_by_handler(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        delivery::fixtures, handler::States, instance::InstanceId, memory::MemoryPool,
        rules::watermark::Server, store::NewInstance,
    };

    /// Never comes back.
    struct Hangs;

    #[async_trait::async_trait]
    impl TransactionalRun for Hangs {
        async fn run(&self, _: FenceRow, _: &Work<'_>) -> Ran {
            std::future::pending().await
        }
    }

    /// Nobody knows what a transaction has done that was cut off: its fence row is invalidated first, so that a late
    /// commit finds the counter gone.
    #[tokio::test(start_paused = true)]
    async fn a_fence_row_that_was_cut_off_is_resolved_before_it_is_used_again() {
        let (pool, me) = (MemoryPool::new(), InstanceId::generate());
        let store = fixtures::store(&pool);
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: me, name, version, fence_rows: 2 }).await.unwrap();
        let (freed, settler) = (Wake::default(), FenceRow::of_settler(me, Server::default()));
        let fences = SlotPool::new(store, Observers::default(), settler, 1, freed.clone(), Wake::default());
        let fences = Arc::new(fences);
        let mut slot = fences.slot().unwrap();
        assert!(fences.slot().is_none(), "there is one");
        let states = States::default();
        let work = Work {
            records: &[],
            stopping: &[],
            states: &states,
            timeout: Duration::MAX,
            may_start: &|| true,
        };
        let cut_off = tokio::time::timeout(Duration::from_secs(1), slot.run(&Hangs, &work)).await;
        assert!(cut_off.is_err());
        drop(slot);
        assert!(fences.slot().is_none(), "it is in doubt");
        freed.nudged().await;
        assert_eq!(fences.slot().unwrap().fence.counter, 2, "invalidated");
    }
}
