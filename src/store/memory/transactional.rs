//! Handlers inside the transaction of their completion.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;

use super::{Completed, Fault, Memory, MemoryPool, MemoryTransaction};
use crate::{
    handler::{Context, HandlerError, States, TransactionalCall},
    record::Record,
    store::{Guard, StoreSettings, Transacted, TransactionalRun},
};

/// Runs a transactional handler on a transaction of the pool.
pub(super) struct MemoryTransactional {
    pub(super) pool: MemoryPool,
    pub(super) settings: StoreSettings,
    pub(super) call: Arc<dyn TransactionalCall<Memory>>,
}

impl MemoryTransactional {
    /// Guard, completion and commit, in one critical section.
    fn complete(&self, guard: Guard, record: &Record, mut tx: MemoryTransaction) -> Transacted {
        let lost = match self.pool.shared.faults.next("commit") {
            Some(fault @ Fault::NotApplied) => return Transacted::Unknown(fault.error("commit")),
            lost => lost,
        };
        let id = record.delivery.id;
        let mut data = self.pool.shared.data();
        let outbox = data.outbox(&self.settings.tables);
        if !outbox.move_guard(guard) {
            return Transacted::Fenced;
        }
        let now = tokio::time::Instant::now();
        let completed: Completed = self.settings.completed;
        if !outbox.complete(id, record.failures(), completed, now) {
            outbox.guards.insert((guard.instance, guard.slot), guard.counter);
            return Transacted::Fenced;
        }
        if record.failures() > 0 {
            outbox.resume_lane(id);
        }
        tx.write(&mut data);
        match lost {
            Some(fault) => Transacted::Unknown(fault.error("commit")),
            None => Transacted::Committed,
        }
    }
}

#[async_trait]
impl TransactionalRun for MemoryTransactional {
    async fn run(&self, guard: Guard, record: &Record, states: &States, timeout: Duration) -> Transacted {
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return Transacted::Aborted(error),
        };
        // Until the commit, dropping the transaction takes everything back.
        let handled = AssertUnwindSafe(self.call.call(Context::new(record, states), &mut tx)).catch_unwind();
        match tokio::time::timeout(timeout, handled).await {
            Err(_) => return Transacted::Failed(HandlerError::timed_out(timeout)),
            Ok(Err(panic)) => return Transacted::Failed(HandlerError::panicked(&*panic)),
            Ok(Ok(Err(error))) => return Transacted::Failed(error),
            Ok(Ok(Ok(()))) => {}
        }
        match self.pool.shared.faults.around("complete", || ()) {
            Ok(()) => self.complete(guard, record, tx),
            Err(error) => Transacted::Aborted(error),
        }
    }
}
