//! One reading of pending records: which statements it takes, one after another. And what is known from one reading to
//! the next.

use super::{
    watermark::{Bystanders, Head, Horizon, LowWatermark, Plan, Server},
    witnesses::Witness,
};
use crate::{partition::PartitionSet, record::RecordId};

/// So many statements of a reading may find that they begin too late, because a transaction has ended meanwhile. Then
/// the partitions are fetched by themselves, which needs no knowledge.
const MOST_PLANS: u32 = 8;

/// What a reading asks the database next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// The last id, and after that the number of a transaction.
    DrawNumber,
    /// Which of these transactions have written no record.
    FindBystanders(Vec<i64>),
    /// Where the head of these partitions is.
    FindHead(PartitionSet),
    /// Pending records in id order, and the horizon of the same moment.
    ScanById {
        /// The first id.
        from: RecordId,
        /// How many ids.
        reach: i64,
        /// Numbers of transactions. If one of them has ended, what is read does not count.
        open: Vec<i64>,
    },
    /// Pending records of each partition from its head. The reading ends with it.
    FetchByPartition,
}

/// One reading. [`Reading::next`] is asked for a statement, and its answer is given back, until one ends the reading.
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

    /// The answer to [`Statement::DrawNumber`]; `None` where numbers do not count.
    pub fn drew(&mut self, drawn: Option<(Witness, Server)>) {
        if let Some((witness, server)) = drawn {
            self.watermark.wrote(witness.last_id, witness.number, server);
        }
    }

    /// The answer to [`Statement::FindBystanders`]; `None` where numbers do not count.
    pub fn bystanders_found(&mut self, found: Option<Bystanders>) {
        if let Some(found) = found {
            self.watermark.found_bystanders(found);
        }
    }

    /// The answer to [`Statement::FindHead`].
    pub fn head_found(&mut self, head: &Head) {
        if let Next::Then(Plan::FindHead(of)) = self.next {
            self.next = Next::Then(self.watermark.head_found(of, self.owned, head));
        }
    }

    /// The answer to [`Statement::ScanById`]: how many records, of at most `limit`, and the id of the last one. Returns
    /// whether there may be more, and so the reading has ended; `None`: it has begun too late, and what it has read
    /// does not count.
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

/// What is known from one reading to the next, and what settles have told of the transactions that are open.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    watermark: LowWatermark,
    /// The number of the last settle and its server, and the last id that was known before it. From the end of
    /// that settle to the next reading.
    wrote: Option<(RecordId, (i64, Server))>,
    /// The last id that was known when the settle under way began, and the server that had told it.
    settle_began_at: (RecordId, Server),
}

impl Readings {
    /// A settle begins.
    pub fn settle_begins(&mut self) {
        self.settle_began_at = self.watermark.last_id();
    }

    /// It has ended, in a transaction of this number.
    pub fn settle_ends(&mut self, number: Option<(i64, Server)>) {
        let (last_id, server) = self.settle_began_at;
        // The last id of one server and a number of another do not belong together.
        let number = number.filter(|(_, of)| *of == server);
        self.wrote = number.map(|number| (last_id, number)).or(self.wrote);
    }

    /// A reading of these partitions begins. `missed`: where something below the watermark may be pending;
    /// `leaves_out`: it does not bring the records of all handlers.
    pub fn begin(&mut self, owned: PartitionSet, missed: PartitionSet, leaves_out: bool) -> Reading {
        if let Some((last_id, (number, server))) = self.wrote.take() {
            self.watermark.wrote(last_id, number, server);
        }
        self.watermark.reset(missed);
        self.watermark.leave_out(leaves_out);
        Reading::new(self.watermark.clone(), owned)
    }

    /// It has ended without an error.
    pub fn end(&mut self, reading: &Reading) {
        self.watermark = reading.watermark.clone();
    }

    /// What was known may be of another database.
    pub fn discard(&mut self) {
        *self = Self::default();
    }

    /// The next reading is of each partition by itself.
    pub fn fetch_by_partition_next(&mut self) {
        self.watermark.fetch_by_partition_next();
    }
}
