//! The right to write outcomes, and how a write with a lost reply is resolved.

use crate::{instance::InstanceId, rules::horizon::Server};

/// The right to write outcomes: a row of `outbox_fence` at a counter value, on one server. Each write moves
/// the counter on by one. An evictor closes the row, and a later write then finds no row with its value. A
/// server that has taken over may have a copy of the row, so each write also compares the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceRow {
    /// The instance that the row belongs to.
    pub instance: InstanceId,
    /// The number of the row within its instance: 0 is the settler's, transactional handlers have one each, and those
    /// after them are the settler's, too.
    pub slot: u32,
    /// The value that the counter must have. Moved on by [`moved`](Self::moved) and
    /// [`invalidated`](Self::invalidated).
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

    /// The fence row after [`RecordStore::resolve`](super::RecordStore::resolve) has invalidated it. The
    /// counter moves by two, so that an applied write and an invalidation with a lost reply can be told
    /// apart.
    #[must_use]
    pub fn invalidated(self) -> Self {
        Self { counter: self.counter + 2, ..self }
    }

    /// What the counter, read after an invalidation, says about the write under this fence row.
    pub fn resolution(self, counter: i64) -> Resolution {
        match counter {
            counter if counter == self.moved().counter => Resolution::Applied,
            counter if counter == self.invalidated().counter => Resolution::NotApplied,
            _ => Resolution::Closed,
        }
    }
}

/// What became of a settle whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The settle was written.
    Applied,
    /// The settle was not written and never will be: the counter has moved by two, see
    /// [`FenceRow::invalidated`].
    NotApplied,
    /// This instance has been evicted.
    Closed,
}

/// The slot of the settler.
pub const SETTLER_SLOT: u32 = 0;
/// The fence rows of the settler beside its first one. They are made at the join.
pub const SPARE_ROWS: u32 = 15;
/// The counter of a closed fence row.
pub const CLOSED: i64 = -1;
