//! The right to write outcomes, and what is learnt of a write whose answer was lost.

use crate::{instance::InstanceId, rules::watermark::Server};

/// The right to write outcomes: a row of `outbox_fence` at a counter value, on one server. Each write moves the
/// counter on by one; an evictor closes the row, and every later write finds its value gone. A server that has
/// taken over may have a copy of the row, so the write also asks which server it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceRow {
    /// The instance that it belongs to.
    pub instance: InstanceId,
    /// Which of its fence rows: 0 is the settler's, transactional handlers have one each.
    pub slot: u32,
    /// The value that the counter must have.
    pub counter: i64,
    /// The server on which the instance has joined.
    pub server: Server,
}

impl FenceRow {
    /// The fence row of the settler of an instance that has just joined on this server.
    pub fn of_settler(instance: InstanceId, server: Server) -> Self {
        Self { instance, slot: SETTLER_SLOT, counter: 0, server }
    }

    /// The fence row after a write under it.
    #[must_use]
    pub fn moved(self) -> Self {
        Self { counter: self.counter + 1, ..self }
    }

    /// The fence row after [`RecordStore::resolve`](super::RecordStore::resolve) has invalidated it: by two, so that a write that did run
    /// and an invalidation whose own reply was lost can be told apart.
    #[must_use]
    pub fn invalidated(self) -> Self {
        Self { counter: self.counter + 2, ..self }
    }

    /// What a counter read after an invalidation says about the write under this fence row.
    pub fn resolution(self, counter: i64) -> Resolution {
        match counter {
            counter if counter == self.moved().counter => Resolution::Applied,
            counter if counter == self.invalidated().counter => Resolution::NotApplied,
            _ => Resolution::Closed,
        }
    }
}

/// What became of a settle whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was written.
    Applied,
    /// It was not written, and it never will be: the counter has been moved by two, see
    /// [`FenceRow::invalidated`].
    NotApplied,
    /// This instance has been evicted.
    Closed,
}

/// The slot of the settler.
pub const SETTLER_SLOT: u32 = 0;
/// The counter of a closed fence row.
pub const CLOSED: i64 = -1;
