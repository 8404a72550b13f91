//! The low watermark of this instance: the id below which it has nothing to fetch; see
//! [`crate::rules::watermark`].

use crate::{
    partition::PartitionSet,
    record::RecordId,
    rules::watermark::{LowWatermark, Server},
};

/// The watermark, and what settles have told of the transactions that are open.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    /// Moved on by the fetches.
    low: LowWatermark,
    /// The number of the last settle and its server, and the last id that was known before it. From the end of
    /// that settle to the next fetch.
    wrote: Option<(RecordId, (i64, Server))>,
    /// The last id that was known when the settle under way began, and the server that had told it.
    settle_began_at: (RecordId, Server),
}

impl Watermark {
    /// A settle begins.
    pub(super) fn settle_begins(&mut self) {
        self.settle_began_at = self.low.last_id();
    }

    /// It has ended, in a transaction of this number.
    pub(super) fn settle_ends(&mut self, number: Option<(i64, Server)>) {
        let (last_id, server) = self.settle_began_at;
        // The last id of one server and a number of another do not belong together.
        let number = number.filter(|(_, of)| *of == server);
        self.wrote = number.map(|number| (last_id, number)).or(self.wrote);
    }

    /// What the next fetch goes by. `missed`: where something below may be pending; `leaves_out`: it does not
    /// bring the records of all handlers.
    pub(super) fn begin_fetch(&mut self, missed: PartitionSet, leaves_out: bool) -> LowWatermark {
        if let Some((last_id, (number, server))) = self.wrote.take() {
            self.low.wrote(last_id, number, server);
        }
        self.low.reset(missed);
        self.low.leave_out(leaves_out);
        self.low.clone()
    }

    /// The fetch has moved it on.
    pub(super) fn end_fetch(&mut self, low: LowWatermark) {
        self.low = low;
    }

    /// What was known may be of another database.
    pub(super) fn discard(&mut self) {
        *self = Self::default();
    }

    /// The next fetch is of each partition by itself.
    pub(super) fn fetch_by_partition_next(&mut self) {
        self.low.fetch_by_partition_next();
    }
}
