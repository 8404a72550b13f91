//! Handlers in the transaction of their completion: what a store is asked to run, and what came of it.

use std::time::Duration;

use async_trait::async_trait;

use super::{FenceRow, StoreError};
use crate::{
    handler::{HandlerError, States},
    record::{Record, RecordId},
};

/// Why a handler has failed that ended the transaction of its completion, or put another in its place.
pub(crate) const ENDED: &str = "the handler has ended the transaction of its completion by a statement of its own, such as \
    COMMIT, ROLLBACK or (on MySQL and MariaDB) CREATE TABLE, or has put another in its place: leave the transaction to \
    the outbox";
/// Why a handler has failed that left work open.
pub(crate) const NESTED: &str = "the handler has left a transaction open that it began within the one of its completion: \
    commit it or roll it back before it returns";

/// What became of the records of a handler's transaction: the same for all of them.
#[derive(Debug)]
#[doc(hidden)]
pub enum Transacted {
    /// Committed: effects and completion together.
    Committed,
    /// The lease or the partition went before the handler was called; everything was rolled back.
    Untried,
    /// The handler failed, everything was rolled back.
    Failed(HandlerError),
    /// The database failed before the commit, everything was rolled back. No attempt counts.
    Aborted(StoreError),
    /// Another owner has settled one of the records, or this instance has been evicted.
    Fenced,
    /// The answer of the commit was lost: ask [`RecordStore::resolve`](super::RecordStore::resolve).
    Unknown(StoreError),
}

/// What a transactional handler is called with.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Work<'a> {
    /// The records of the transaction, in order.
    pub records: &'a [&'a Record],
    /// Those of them whose lanes may stand still because of them: with their completion these lanes go on.
    pub stopping: &'a [RecordId],
    /// The shared values.
    pub states: &'a States,
    /// How long the handler may take.
    pub timeout: Duration,
    /// Whether a call may start now; asked last, when the transaction is open.
    pub may_start: &'a (dyn Fn() -> bool + Sync),
}

/// Runs a transactional handler.
#[async_trait]
#[doc(hidden)]
pub trait TransactionalRun: Send + Sync + 'static {
    /// Begins, calls the handler, moves the fence row's counter on, writes the completions, commits.
    ///
    /// A failure leaves the counter where it was. Dropping the future closes its connection.
    async fn run(&self, fence: FenceRow, work: &Work<'_>) -> Transacted;
}
