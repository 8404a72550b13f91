//! Handlers inside the transaction of their completion.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Fault, Memory, MemoryPool, MemoryTransaction};
use crate::{
    handler::{TransactionalBatchCall, guarded},
    record::Record,
    store::{FenceRow, StoreSettings, Transacted, TransactionalRun, Work},
};

/// Runs a transactional handler on a transaction of the pool.
pub(super) struct MemoryTransactional {
    pub(super) pool: MemoryPool,
    pub(super) settings: StoreSettings,
    pub(super) call: Arc<dyn TransactionalBatchCall<Memory>>,
}

impl MemoryTransactional {
    /// Fence row, completions and commit, in one critical section.
    fn complete(&self, fence: FenceRow, records: &[&Record], mut tx: MemoryTransaction) -> Transacted {
        let lost = match self.pool.shared.faults.next("commit") {
            Some(fault @ Fault::NotApplied) => return Transacted::Unknown(fault.error("commit")),
            lost => lost,
        };
        let mut data = self.pool.shared.data();
        let outbox = data.outbox(&self.settings.tables);
        let all_there = records.iter().all(|record| outbox.is_open(record.delivery.id, record.failures()));
        if !all_there || !outbox.move_fence(fence) {
            return Transacted::Fenced;
        }
        let now = tokio::time::Instant::now();
        for record in records {
            let (id, failures) = (record.delivery.id, record.failures());
            outbox.complete(id, failures, self.settings.completed, now);
            if failures > 0 {
                outbox.resume_lane(id);
            }
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
    async fn run(&self, fence: FenceRow, work: &Work<'_>) -> Transacted {
        let Work { records, states, timeout, may_start } = *work;
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return Transacted::Aborted(error),
        };
        // Until the commit, dropping the transaction rolls everything back.
        if !may_start() {
            return Transacted::Untried;
        }
        match guarded(timeout, || self.call.call(records, states, &mut tx)).await {
            Err(error) | Ok(Err(error)) => return Transacted::Failed(error),
            Ok(Ok(())) => {}
        }
        match self.pool.shared.faults.around("complete", || ()) {
            Ok(()) => self.complete(fence, records, tx),
            Err(error) => Transacted::Aborted(error),
        }
    }
}
