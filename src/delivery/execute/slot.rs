//! Fence rows of transactional handlers. A call holds one fence row, and resolves it after a lost reply.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    delivery::resolve::resolve,
    handler::HandlerError,
    store::{ErrorClass, FenceRow, Resolution, Store, StoreError, Transacted as Ran, TransactionalRun, Work},
    telemetry::Observers,
    wake::{Wake, unhindered},
};

/// The most tries of a transaction that conflicts with others, and the pause before the second try. Each
/// further pause is longer by as much.
const CONFLICTS: u32 = 6;
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// The outcome of a transaction.
pub(super) enum Transacted {
    Committed,
    Untried,
    /// The records are claimed, and their commit may have happened.
    Unknown(StoreError),
    Lost,
    Aborted(StoreError),
    Failed(HandlerError),
}

/// The fence rows of an instance's transactional handlers.
pub(super) struct SlotPool {
    /// The store, for `resolve`. Never changes.
    store: Arc<dyn Store>,
    /// Receives the signals of `resolve`. Never changes.
    observers: Observers,
    /// Whether the records are claimed, so that no fence row is written: a slot is then only a place. Never
    /// changes.
    claimed: bool,
    /// Free fence rows, by turns. Taken by `slot`, returned by the drop of a slot.
    idle: Mutex<VecDeque<FenceRow>>,
    /// Nudged when a fence row in doubt is resolved and free, because no report says so.
    freed: Wake,
    /// Nudged by `resolve` when a fence row was found closed: this instance has been evicted.
    evicted: Wake,
}

/// A fence row in use. If a slot is dropped during a transaction, the outcome of the transaction is unknown.
/// A task then resolves the fence row before it is used again.
pub(super) struct Slot {
    /// The pool that the fence row returns to. Never changes.
    pool: Arc<SlotPool>,
    /// The fence row and its counter. Moved on by each transaction and by `resolve`.
    fence: FenceRow,
    /// Whether the outcome of the transaction is unknown. True while one is under way; written by `run_once`.
    in_doubt: bool,
}

impl SlotPool {
    /// A pool of `size` fence rows, in the slots after the settler's.
    pub(super) fn new(
        store: Arc<dyn Store>,
        observers: Observers,
        settler: FenceRow,
        (size, claimed): (usize, bool),
        freed: Wake,
        evicted: Wake,
    ) -> Self {
        let slots = (settler.slot + 1..).take(size);
        let idle = slots.map(|slot| FenceRow { slot, ..settler }).collect();
        Self { store, observers, claimed, idle: Mutex::new(idle), freed, evicted }
    }

    /// A free fence row, or `None` if all are in use.
    pub(super) fn slot(self: &Arc<Self>) -> Option<Slot> {
        let fence = self.free_rows().pop_front()?;
        Some(Slot { pool: Arc::clone(self), fence, in_doubt: false })
    }

    /// The number of free fence rows.
    pub(super) fn idle(&self) -> usize {
        self.free_rows().len()
    }

    fn free_rows(&self) -> MutexGuard<'_, VecDeque<FenceRow>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Whether the records are claimed: they have no order.
    pub(super) fn is_of_claims(&self) -> bool {
        self.pool.claimed
    }

    /// Runs a transactional handler under this fence row. After a conflict with another transaction, tries
    /// again, with a short pause. A handler that conflicts in every try has failed.
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

    /// The tokens of the claims take the place of the fence row. A commit whose reply was lost leaves nothing to
    /// do: if it was not written, the record comes again after its lease, under another token.
    async fn run_claimed(&mut self, call: &dyn TransactionalRun, work: &Work<'_>) -> Transacted {
        match call.run_claimed(self.fence.instance, work).await {
            Ran::Committed => Transacted::Committed,
            Ran::Untried => Transacted::Untried,
            Ran::Failed(error) => Transacted::Failed(error),
            Ran::Aborted(error) | Ran::Unknown(error) if is_by_handler(&error) => {
                Transacted::Failed(HandlerError::new(error))
            }
            Ran::Unknown(error) if error.class == ErrorClass::Retry => Transacted::Aborted(error),
            Ran::Aborted(error) => Transacted::Aborted(error),
            Ran::Unknown(error) => Transacted::Unknown(error),
            Ran::Fenced => Transacted::Lost,
        }
    }

    async fn run_once(&mut self, call: &dyn TransactionalRun, work: &Work<'_>) -> Transacted {
        if self.pool.claimed {
            return self.run_claimed(call, work).await;
        }
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
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.fence);
            return;
        }
        // A call can be cut off only inside a runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut slot = Self { pool: Arc::clone(&self.pool), fence: self.fence, in_doubt: false };
            runtime.spawn(unhindered(async move {
                slot.resolve().await;
                let pool = Arc::clone(&slot.pool);
                drop(slot);
                pool.freed.nudge();
            }));
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

/// Whether the handler caused the database's refusal to commit: a deferred constraint, a trigger that raises,
/// a statement whose error the handler has ignored. If such a transaction did not count as an attempt, its
/// retries would never end.
fn is_by_handler(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        time::Duration,
    };

    use super::*;
    use crate::{
        delivery::fixtures, handler::States, instance::InstanceId, memory::MemoryPool,
        rules::horizon::Server, store::NewInstance,
    };

    /// A handler that never returns.
    struct Hangs;

    #[async_trait::async_trait]
    impl TransactionalRun for Hangs {
        async fn run(&self, _: FenceRow, _: &Work<'_>) -> Ran {
            std::future::pending().await
        }

        async fn run_claimed(&self, _: InstanceId, _: &Work<'_>) -> Ran {
            std::future::pending().await
        }
    }

    /// A handler that ends with the result of a closure.
    struct Ends<F>(F);

    #[async_trait::async_trait]
    impl<F: Fn(FenceRow) -> Ran + Send + Sync + 'static> TransactionalRun for Ends<F> {
        async fn run(&self, fence: FenceRow, _: &Work<'_>) -> Ran {
            (self.0)(fence)
        }

        async fn run_claimed(&self, owner: InstanceId, _: &Work<'_>) -> Ran {
            (self.0)(FenceRow::of_settler(owner, Server::default()))
        }
    }

    fn error(class: ErrorClass) -> StoreError {
        StoreError::new("commit", class, "no")
    }

    /// The pool of an instance with one fence row for transactions.
    async fn one_fence_row() -> Arc<SlotPool> {
        let (store, me) = (fixtures::store(&MemoryPool::new()), InstanceId::generate());
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: me, name, version, fence_rows: 2 }).await.unwrap();
        let settler = FenceRow::of_settler(me, Server::default());
        let (freed, evicted) = (Wake::default(), Wake::default());
        Arc::new(SlotPool::new(store, Observers::default(), settler, (1, false), freed, evicted))
    }

    async fn run(slot: &mut Slot, call: &dyn TransactionalRun) -> Transacted {
        let (states, timeout) = (States::default(), Duration::MAX);
        let work = Work { records: &[], stopping: &[], states: &states, timeout, may_start: &|| true };
        slot.run(call, &work).await
    }

    /// The outcome of a transaction that was cut off is unknown. Its fence row is invalidated first, so that
    /// a late commit matches no row.
    #[tokio::test(start_paused = true)]
    async fn a_fence_row_that_was_cut_off_is_resolved_before_it_is_used_again() {
        let fences = one_fence_row().await;
        let mut slot = fences.slot().unwrap();
        assert!(fences.slot().is_none(), "there is one");
        let cut_off = tokio::time::timeout(Duration::from_secs(1), run(&mut slot, &Hangs)).await;
        assert!(cut_off.is_err());
        drop(slot);
        assert!(fences.slot().is_none(), "it is in doubt");
        fences.freed.nudged().await;
        assert_eq!(fences.slot().unwrap().fence.counter, 2, "invalidated");
    }

    /// A refusal is the handler's failure, even if only the commit meets it. All other errors of the database
    /// count as no attempt.
    #[tokio::test(start_paused = true)]
    async fn what_the_database_refuses_is_the_handlers_failure_and_nothing_else_is() {
        use ErrorClass::{Duplicate, Reconnect, Record, Refused, Resource};
        let fences = one_fence_row().await;
        let mut slot = fences.slot().unwrap();
        for class in [Record, Duplicate, Refused] {
            let aborted = run(&mut slot, &Ends(move |_| Ran::Aborted(error(class)))).await;
            assert!(matches!(aborted, Transacted::Failed(_)), "{class:?}");
            let refused = run(&mut slot, &Ends(move |_| Ran::Unknown(error(class)))).await;
            assert!(matches!(refused, Transacted::Failed(_)), "{class:?} at the commit");
        }
        for class in [Reconnect, Resource] {
            let aborted = run(&mut slot, &Ends(move |_| Ran::Aborted(error(class)))).await;
            assert!(matches!(aborted, Transacted::Aborted(_)), "{class:?}");
            let lost = run(&mut slot, &Ends(move |_| Ran::Unknown(error(class)))).await;
            assert!(matches!(lost, Transacted::Lost), "{class:?} at the commit");
        }
        assert_eq!(slot.fence.counter, 2 * 5, "each commit in doubt has invalidated the fence row");
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_tried_again_so_many_times_and_then_is_a_failure() {
        let fences = one_fence_row().await;
        let mut slot = fences.slot().unwrap();
        let (began, tries) = (tokio::time::Instant::now(), AtomicU32::new(0));
        let conflicts = Ends(move |_| match tries.fetch_add(1, SeqCst) {
            0..2 => Ran::Aborted(error(ErrorClass::Retry)),
            2 => Ran::Unknown(error(ErrorClass::Retry)),
            _ => Ran::Committed,
        });
        assert!(matches!(run(&mut slot, &conflicts).await, Transacted::Committed));
        assert_eq!(began.elapsed(), CONFLICT_PAUSE * (1 + 2 + 3));
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let for_ever = Ends(move |_| {
            counted.fetch_add(1, SeqCst);
            Ran::Aborted(error(ErrorClass::Retry))
        });
        assert!(matches!(run(&mut slot, &for_ever).await, Transacted::Failed(_)));
        assert_eq!(tries.load(SeqCst), CONFLICTS);
    }

    /// The commit was written, and its reply was lost. Later the instance is evicted.
    #[tokio::test(start_paused = true)]
    async fn a_lost_reply_is_asked_for_and_a_closed_fence_row_is_told() {
        let fences = one_fence_row().await;
        let mut slot = fences.slot().unwrap();
        let store = Arc::clone(&fences.store);
        let fence = slot.fence;
        assert!(matches!(run(&mut slot, &Ends(|_| Ran::Committed)).await, Transacted::Committed));
        assert_eq!(slot.fence, fence.moved());
        store.settle(fence, &[]).await.unwrap();
        store.settle(fence.moved(), &[]).await.unwrap();
        let lost = Ends(|_| Ran::Unknown(error(ErrorClass::Reconnect)));
        assert!(matches!(run(&mut slot, &lost).await, Transacted::Committed));
        assert_eq!(slot.fence, fence.moved().moved());
        assert!(matches!(run(&mut slot, &Ends(|_| Ran::Untried)).await, Transacted::Untried));
        store.evict(fence.instance, None).await.unwrap();
        assert!(matches!(run(&mut slot, &Ends(|_| Ran::Fenced)).await, Transacted::Lost));
        fences.evicted.nudged().await;
        drop(slot);
        assert!(fences.slot().is_some(), "what is in no doubt is free at once");
    }

    /// The tokens of the claims decide, so that no fence row is resolved and none is ever in doubt.
    #[tokio::test(start_paused = true)]
    async fn claimed_records_end_as_their_transaction_did() {
        use ErrorClass::{Reconnect, Refused, Resource, Retry};
        let store = fixtures::store(&MemoryPool::new());
        let settler = FenceRow::of_settler(InstanceId::generate(), Server::default());
        let (freed, evicted) = (Wake::default(), Wake::default());
        let pool = SlotPool::new(store, Observers::default(), settler, (1, true), freed, evicted);
        let mut slot = Arc::new(pool).slot().unwrap();
        let fence = slot.fence;
        let word = |transacted| match transacted {
            Transacted::Committed => "committed",
            Transacted::Untried => "untried",
            Transacted::Lost => "lost",
            Transacted::Unknown(_) => "unknown",
            Transacted::Aborted(_) => "aborted",
            Transacted::Failed(_) => "failed",
        };
        let mut ends = async |end: fn() -> Ran| word(run(&mut slot, &Ends(move |_| end())).await);
        assert_eq!(ends(|| Ran::Committed).await, "committed");
        assert_eq!(ends(|| Ran::Untried).await, "untried");
        assert_eq!(ends(|| Ran::Failed(HandlerError::new("no"))).await, "failed");
        assert_eq!(ends(|| Ran::Fenced).await, "lost");
        assert_eq!(ends(|| Ran::Aborted(error(Refused))).await, "failed");
        assert_eq!(ends(|| Ran::Unknown(error(Refused))).await, "failed");
        assert_eq!(ends(|| Ran::Aborted(error(Resource))).await, "aborted");
        assert_eq!(ends(|| Ran::Unknown(error(Reconnect))).await, "unknown");
        assert_eq!(ends(|| Ran::Aborted(error(Retry))).await, "failed", "after all its tries");
        assert_eq!(ends(|| Ran::Unknown(error(Retry))).await, "failed", "after all its tries");
        assert_eq!((slot.fence, slot.in_doubt), (fence, false));
    }
}
