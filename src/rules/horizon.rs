//! What the database tells of its ids with an answer: how far they are resolved, and what lies at the head.

use super::witnesses::Snapshot;
use crate::record::RecordId;

/// The server behind a result. After a failover or a crash the number differs, and ids have another history.
/// A database with only one history keeps the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server(pub i64);

/// How far the ids of a database are resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizon {
    /// The server that answered.
    pub server: Server,
    /// The last id that was drawn.
    pub last_id: RecordId,
    /// The snapshot of the same statement. `None` on a database whose scans miss no id by themselves: then
    /// every drawn id is resolved.
    pub snapshot: Option<Snapshot>,
    /// The ids of further pending records that a scan has seen before it read what is below it, in order. Empty
    /// unless scans of this database read below.
    pub ahead: Vec<RecordId>,
    /// The ids that the snapshot sees, from the first id of the scan on, as many as were asked for. In ascending
    /// order.
    pub visible: Vec<RecordId>,
}

impl Horizon {
    /// The lowest number that an open transaction can have.
    pub fn open_from(&self) -> Option<i64> {
        self.snapshot.as_ref().map(Snapshot::open_from)
    }
}

/// The head of the pending set, as the database sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The first pending record, if any.
    pub first: Option<RecordId>,
    /// The horizon. Its `last_id` was read before `number` was drawn, and its snapshot was taken afterwards.
    pub horizon: Horizon,
    /// The number of a transaction that was drawn for this query. `None` on a database without numbers.
    pub number: Option<i64>,
}

/// Open transactions that have written no record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bystanders {
    /// The server that answered.
    pub server: Server,
    /// The last id, read before the transactions were.
    pub last_id: RecordId,
    /// The numbers of the transactions. A transaction that has ended since may be among them.
    pub numbers: Vec<i64>,
}
