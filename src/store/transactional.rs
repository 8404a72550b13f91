//! Handlers in the transaction of their completion: the call of the store and its results.

use std::time::Duration;

use async_trait::async_trait;

use super::{FenceRow, StoreError};
use crate::{
    handler::{HandlerError, States},
    instance::InstanceId,
    record::{Record, RecordId},
};

/// The error of a handler that has ended the transaction of its completion, or has begun another one instead.
pub(crate) const ENDED: &str = "the handler has ended the transaction of its completion by a statement of its own, such as \
    COMMIT, ROLLBACK or (on MySQL and MariaDB) CREATE TABLE, or has put another in its place: leave the transaction to \
    the outbox";
/// The error of a handler that has left a transaction open.
pub(crate) const NESTED: &str = "the handler has left a transaction open that it began within the one of its completion: \
    commit it or roll it back before it returns";

/// The result of a handler's transaction, the same for all its records.
#[derive(Debug)]
#[doc(hidden)]
pub enum Transacted {
    /// Committed: the effects of the handler and the completions.
    Committed,
    /// The lease or the partition was lost before the handler was called. The transaction was rolled back.
    Untried,
    /// The handler failed. The transaction was rolled back.
    Failed(HandlerError),
    /// The database failed before the commit. The transaction was rolled back, and no attempt counts.
    Aborted(StoreError),
    /// Another owner has settled one of the records, or this instance has been evicted.
    Fenced,
    /// The reply of the commit was lost: call [`RecordStore::resolve`](super::RecordStore::resolve).
    Unknown(StoreError),
}

/// The work of one transaction: its records and what the call of the handler needs.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Work<'a> {
    /// The records of the transaction, in id order.
    pub records: &'a [&'a Record],
    /// Those of the records that may have stopped their lanes. With their completion these lanes go on.
    pub stopping: &'a [RecordId],
    /// The values shared with all handlers.
    pub states: &'a States,
    /// The longest time of the handler's call.
    pub timeout: Duration,
    /// Whether the call may start. Asked when the transaction is open, directly before the call.
    pub may_start: &'a (dyn Fn() -> bool + Sync),
}

/// Runs a transactional handler.
#[async_trait]
#[doc(hidden)]
pub trait TransactionalRun: Send + Sync + 'static {
    /// Begins, calls the handler, moves the counter of the fence row on, writes the completions, commits.
    ///
    /// A failure leaves the counter unchanged. Dropping the future closes the connection.
    async fn run(&self, fence: FenceRow, work: &Work<'_>) -> Transacted;

    /// Does as [`run`](Self::run) with claimed records: the tokens of their claims take the place of the fence
    /// row. If the reply of the commit is lost, nothing more is to be done: the lease decides.
    async fn run_claimed(&self, owner: InstanceId, work: &Work<'_>) -> Transacted;
}
