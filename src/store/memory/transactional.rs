//! Handlers in the transaction of their completion.

use std::sync::Arc;

use async_trait::async_trait;

use tokio::time::Instant;

use super::{Fault, Memory, MemoryPool, MemoryTransaction, client::wait, state::Data};
use crate::{
    handler::{HandlerError, TransactionalBatchCall, guarded},
    instance::InstanceId,
    record::Record,
    store::{ENDED, FenceRow, NESTED, StoreSettings, Transacted, TransactionalRun, Work},
};

/// What refuses the completions of a stale instance.
#[derive(Clone, Copy)]
enum Right {
    /// The counter of a fence row.
    Fence(FenceRow),
    /// The tokens of the claims of this owner.
    Claims(InstanceId),
}

/// Runs a transactional handler on a transaction of the pool.
pub(super) struct MemoryTransactional {
    pub(super) pool: MemoryPool,
    pub(super) settings: StoreSettings,
    pub(super) call: Arc<dyn TransactionalBatchCall<Memory>>,
}

impl MemoryTransactional {
    /// Writes the fence row and the completions and commits, in one critical section.
    async fn complete(&self, right: Right, work: &Work<'_>, mut tx: MemoryTransaction) -> Transacted {
        let client = &self.pool.client;
        let passage = client.set_out("commit").await;
        if let Some(fault @ (Fault::NotApplied | Fault::Conflict)) = passage.fault {
            return Transacted::Unknown(fault.error("commit"));
        }
        let transacted = client.with(|data, now| self.write(right, work, &mut tx, data, now));
        wait(passage.after).await;
        match (transacted, passage.fault) {
            (Transacted::Committed, Some(fault)) => Transacted::Unknown(fault.error("commit")),
            (transacted, _) => transacted,
        }
    }

    fn write(
        &self,
        right: Right,
        work: &Work<'_>,
        tx: &mut MemoryTransaction,
        data: &mut Data,
        now: Instant,
    ) -> Transacted {
        if let Err(error) = tx.on_this_server(data, "complete") {
            return Transacted::Aborted(error);
        }
        let outbox = data.outbox(&self.settings.tables);
        let is_there = |record: &&Record| match right {
            Right::Fence(_) => outbox.is_open(record.delivery.id, record.failures()),
            Right::Claims(owner) => {
                outbox.is_claimed(record.delivery.id, owner, record.delivery.generation.0)
            }
        };
        let all_there = work.records.iter().all(is_there);
        if !all_there || matches!(right, Right::Fence(fence) if !outbox.move_fence(fence)) {
            return Transacted::Fenced;
        }
        for record in work.records {
            let (id, failures) = (record.delivery.id, record.failures());
            outbox.complete(id, failures, self.settings.completed, now);
            if matches!(right, Right::Claims(_)) {
                outbox.records.end_claim(id);
            }
        }
        for id in work.stopping {
            outbox.resume_lane(*id);
        }
        match tx.write(data) {
            Ok(()) => Transacted::Committed,
            Err(error) => Transacted::Aborted(error),
        }
    }
}

#[async_trait]
impl TransactionalRun for MemoryTransactional {
    async fn run(&self, fence: FenceRow, work: &Work<'_>) -> Transacted {
        self.run_under(Right::Fence(fence), work).await
    }

    async fn run_claimed(&self, owner: InstanceId, work: &Work<'_>) -> Transacted {
        self.run_under(Right::Claims(owner), work).await
    }
}

impl MemoryTransactional {
    async fn run_under(&self, right: Right, work: &Work<'_>) -> Transacted {
        let Work { records, states, timeout, may_start, .. } = *work;
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return Transacted::Aborted(error),
        };
        // Until the commit, dropping the transaction rolls everything back.
        if !may_start() {
            return Transacted::Untried;
        }
        let mark = tx.mark();
        match guarded(timeout, || self.call.call(records, states, &mut tx)).await {
            Err(error) | Ok(Err(error)) => return Transacted::Failed(error),
            Ok(Ok(())) => {}
        }
        match self.pool.client.call("complete", |_, _| ()).await {
            Ok(()) if !tx.bears(&mark) => Transacted::Failed(HandlerError::permanent(ENDED)),
            Ok(()) if tx.has_savepoint() => Transacted::Failed(HandlerError::permanent(NESTED)),
            Ok(()) => self.complete(right, work, tx).await,
            Err(error) => Transacted::Aborted(error),
        }
    }
}
