//! One reading of pending records: the statements that it takes, one after another. And the knowledge that is
//! kept between readings.

use super::{
    watermark::{Bystanders, Head, Horizon, LowWatermark, Plan, Server},
    witnesses::Witness,
};
use crate::{partition::PartitionSet, record::RecordId};

/// The most plans of one reading. A statement may find that it has begun too late, because a transaction has
/// ended meanwhile. After this many plans the partitions are fetched by partition, which needs no knowledge.
const MOST_PLANS: u32 = 8;

/// The next statement of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Reads the last id, then draws the number of a transaction.
    DrawNumber,
    /// Finds those of these transactions that have written no record.
    FindBystanders(Vec<i64>),
    /// Finds the head of these partitions.
    FindHead(PartitionSet),
    /// Reads pending records in id order, and the horizon of the same moment.
    ScanById {
        /// The first id.
        from: RecordId,
        /// The number of ids.
        reach: i64,
        /// Numbers of transactions. If one of them has ended, the result is discarded.
        open: Vec<i64>,
    },
    /// Reads pending records of each partition from its head. Ends the reading.
    FetchByPartition,
}

/// One reading. The caller asks [`Reading::next`] for a statement and gives its result back, until a
/// statement ends the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    watermark: LowWatermark,
    owned: PartitionSet,
    next: Next,
    plans: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Number,
    Bystanders,
    First,
    Then(Plan),
}

impl Reading {
    fn new(watermark: LowWatermark, owned: PartitionSet) -> Self {
        Self { watermark, owned, next: Next::Number, plans: 0 }
    }

    /// The next statement.
    #[expect(
        clippy::should_implement_trait,
        reason = "each answer is wanted before the next statement is known"
    )]
    pub fn next(&mut self) -> Statement {
        if self.next == Next::Number {
            self.next = Next::Bystanders;
            if self.watermark.wants_number() {
                return Statement::DrawNumber;
            }
        }
        if self.next == Next::Bystanders {
            self.next = Next::First;
            let doubtful = self.watermark.wants_bystanders();
            if !doubtful.is_empty() {
                return Statement::FindBystanders(doubtful);
            }
        }
        let plan = match self.next {
            Next::Then(plan) => plan,
            _ => self.watermark.plan(self.owned),
        };
        self.next = Next::Then(plan);
        self.plans += 1;
        match plan {
            Plan::FindHead(of) if self.plans <= MOST_PLANS => Statement::FindHead(of),
            Plan::ScanById { from, reach } if self.plans <= MOST_PLANS => {
                Statement::ScanById { from, reach, open: self.watermark.may_lower(from) }
            }
            _ => Statement::FetchByPartition,
        }
    }

    /// Takes the result of [`Statement::DrawNumber`]: `None` on a database without numbers.
    pub fn drew(&mut self, drawn: Option<(Witness, Server)>) {
        if let Some((witness, server)) = drawn {
            self.watermark.wrote(witness.last_id, witness.number, server);
        }
    }

    /// Takes the result of [`Statement::FindBystanders`]: `None` on a database without numbers.
    pub fn bystanders_found(&mut self, found: Option<Bystanders>) {
        if let Some(found) = found {
            self.watermark.found_bystanders(found);
        }
    }

    /// Takes the result of [`Statement::FindHead`].
    pub fn head_found(&mut self, head: &Head) {
        if let Next::Then(Plan::FindHead(of)) = self.next {
            self.next = Next::Then(self.watermark.head_found(of, self.owned, head));
        }
    }

    /// Takes the result of [`Statement::ScanById`]: the number of records, of at most `limit`, and the id of
    /// the last one. If the scan counts, the reading has ended: returns whether there may be more records. If
    /// the scan has begun too late, returns `None`, and its records are discarded.
    pub fn scanned(
        &mut self,
        limit: usize,
        (found, last): (usize, Option<RecordId>),
        horizon: &Horizon,
    ) -> Option<bool> {
        let Next::Then(Plan::ScanById { from, reach }) = self.next else { return None };
        if let Some(plan) = self.watermark.begins_too_late(from, horizon, self.owned) {
            self.next = Next::Then(plan);
            return None;
        }
        Some(self.watermark.scanned((from, reach), limit, (found, last.unwrap_or(from)), horizon))
    }
}

/// The knowledge that is kept between readings, and the numbers of settles, which bound open transactions.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    watermark: LowWatermark,
    /// The last id before the last settle, and the settle's number and server. Set when a settle ends, taken
    /// by the next reading.
    wrote: Option<(RecordId, (i64, Server))>,
    /// The last known id and its server. Set when a settle begins.
    settle_began_at: (RecordId, Server),
}

impl Readings {
    /// Notes the last known id before a settle.
    pub fn settle_begins(&mut self) {
        self.settle_began_at = self.watermark.last_id();
    }

    /// Notes the number of the settle's transaction.
    pub fn settle_ends(&mut self, number: Option<(i64, Server)>) {
        let (last_id, server) = self.settle_began_at;
        // If the last id and the number are of different servers, they prove nothing together.
        let number = number.filter(|(_, of)| *of == server);
        self.wrote = number.map(|number| (last_id, number)).or(self.wrote);
    }

    /// Begins a reading of the owned partitions. Records of `missed` below the watermark may be pending.
    /// `leaves_out` is whether the reading leaves out records of some handlers.
    pub fn begin(&mut self, owned: PartitionSet, missed: PartitionSet, leaves_out: bool) -> Reading {
        if let Some((last_id, (number, server))) = self.wrote.take() {
            self.watermark.wrote(last_id, number, server);
        }
        self.watermark.reset(missed);
        self.watermark.leave_out(leaves_out);
        Reading::new(self.watermark.clone(), owned)
    }

    /// Keeps the knowledge of a reading that has ended without an error.
    pub fn end(&mut self, reading: &Reading) {
        self.watermark = reading.watermark.clone();
    }

    /// Discards all knowledge, which may be of another database.
    pub fn discard(&mut self) {
        *self = Self::default();
    }

    /// Makes the next reading fetch by partition.
    pub fn fetch_by_partition_next(&mut self) {
        self.watermark.fetch_by_partition_next();
    }
}
