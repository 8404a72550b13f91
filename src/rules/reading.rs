//! One reading of pending records: the statements that it takes, one after another. And the knowledge that is
//! kept between readings.

use std::sync::Arc;

use super::{
    horizon::{Bystanders, Head, Horizon, Server},
    watermark::{LowWatermark, Plan},
    witnesses::Witness,
};
use crate::{
    partition::{PARTITION_COUNT, PartitionSet},
    record::RecordId,
};

/// The most plans of one reading. A statement may find that it has begun too late, because a transaction has
/// ended meanwhile. After this many plans the partitions are fetched by partition, which needs no knowledge.
const MOST_PLANS: u32 = 8;

/// The most ids that one scan lists.
const MOST_LISTED: usize = 16_384;

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
        /// Whether the horizon lists the ids that the snapshot sees.
        lists: bool,
        /// The ids that an earlier scan has seen ahead. Only their records are read, and nothing below the first
        /// id. `None` for all records of the range.
        ahead: Option<Arc<[RecordId]>>,
    },
    /// The same of these ranges of ids: first and last of each. The horizon lists what the snapshot sees.
    ScanOthers {
        /// The ranges, in ascending order.
        within: Vec<(RecordId, RecordId)>,
        /// As in [`Statement::ScanById`].
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
                let (open, lists) = (self.watermark.may_lower(from), self.watermark.lists());
                Statement::ScanById { from, reach, open, lists, ahead: None }
            }
            Plan::ScanOthers { from, reach } if self.plans <= MOST_PLANS => {
                let (within, open) = (self.watermark.others(from, reach), self.watermark.may_lower(from));
                Statement::ScanOthers { within, open }
            }
            Plan::ReadAhead => {
                let ahead = self.watermark.ahead();
                let (from, last) = (ahead.first().copied().unwrap_or(1), ahead.last().copied().unwrap_or(1));
                let (reach, open, lists) = (last - from + 1, Vec::new(), false);
                Statement::ScanById { from, reach, open, lists, ahead: Some(ahead) }
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

    /// The most ids that a scan lists which reads at most `limit` records: among the ids of all partitions, so
    /// many should be of the owned ones.
    pub fn listed(&self, limit: usize) -> usize {
        (limit.saturating_mul(PARTITION_COUNT) / self.owned.len().max(1)).clamp(1, MOST_LISTED)
    }

    /// Takes the result of [`Statement::ScanById`] or [`Statement::ScanOthers`]: the number of records, of at
    /// most `limit`, and the id of the last one. If the scan counts, the reading has ended: returns whether
    /// there may be more records. If the scan has begun too late, returns `None`, and its records are discarded.
    pub fn scanned(
        &mut self,
        limit: usize,
        (found, last): (usize, Option<RecordId>),
        horizon: &Horizon,
    ) -> Option<bool> {
        let (from, end, reach) = match self.next {
            Next::Then(Plan::ScanById { from, reach }) => (from, from.saturating_add(reach - 1), reach),
            Next::Then(Plan::ScanOthers { from, reach }) => {
                (from, self.watermark.end_of_others(from, reach), reach)
            }
            Next::Then(Plan::ReadAhead) => {
                self.watermark.read_ahead(last);
                return Some(true);
            }
            _ => return None,
        };
        if let Some(plan) = self.watermark.begins_too_late(from, horizon, self.owned) {
            self.next = Next::Then(plan);
            return None;
        }
        let (found, limits) = ((found, last.unwrap_or(from)), (limit, self.listed(limit)));
        Some(self.watermark.scanned((from, end, reach), limits, found, horizon))
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
    /// A settle begins: keeps the last known id.
    pub fn settle_begins(&mut self) {
        self.settle_began_at = self.watermark.last_id();
    }

    /// The settle has ended: keeps the number of its transaction.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        partition::Partition,
        rules::{watermark::OLD_WITNESS, witnesses::Snapshot},
    };

    const EVERY: PartitionSet = PartitionSet::ALL;
    const LIMIT: usize = 100;
    const HERE: Server = Server(1);

    fn horizon(last_id: RecordId, end: i64, open: &[i64]) -> Horizon {
        let snapshot = Some(Snapshot { end, open: open.to_vec() });
        Horizon { server: HERE, last_id, snapshot, ..Horizon::default() }
    }

    fn begin(readings: &mut Readings) -> Reading {
        readings.begin(EVERY, PartitionSet::EMPTY, false)
    }

    /// A scan that finds nothing. Returns its first id, and whether there may be more if it counts.
    fn scan(reading: &mut Reading, horizon: &Horizon) -> (RecordId, Option<bool>) {
        loop {
            match reading.next() {
                Statement::ScanById { from, .. } => {
                    return (from, reading.scanned(LIMIT, (0, None), horizon));
                }
                Statement::DrawNumber => reading.drew(None),
                other => panic!("{other:?}"),
            }
        }
    }

    /// What is known after all ids up to 10 were read, which were drawn before number 1.
    fn known() -> Readings {
        let mut readings = Readings::default();
        let mut reading = begin(&mut readings);
        assert_eq!(reading.next(), Statement::FindHead(EVERY));
        reading.head_found(&Head { first: None, horizon: horizon(10, 2, &[]), number: Some(1) });
        assert_eq!(scan(&mut reading, &horizon(10, 2, &[])), (11, Some(false)));
        readings.end(&reading);
        readings
    }

    /// Reads while number 8 is open and ids are drawn, up to this statement. Returns the reading and the last
    /// horizon.
    fn read_up_to(readings: &mut Readings, wanted: &Statement) -> (Reading, Horizon) {
        for step in 1.. {
            let horizon = horizon(step * 4_000, 9, &[8]);
            let mut reading = begin(readings);
            loop {
                let statement = reading.next();
                if statement == *wanted {
                    return (reading, horizon);
                }
                match statement {
                    Statement::DrawNumber => {
                        let witness = Witness { last_id: (step - 1) * 4_000, number: 9 };
                        reading.drew(Some((witness, HERE)));
                    }
                    Statement::ScanById { .. } => {
                        assert!(reading.scanned(LIMIT, (0, None), &horizon).is_some());
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
            readings.end(&reading);
            assert!(horizon.last_id < 4 * OLD_WITNESS, "nothing asks for it");
        }
        unreachable!("the steps have no end")
    }

    #[test]
    fn a_number_is_drawn_once_and_bounds_later_scans() {
        let mut readings = known();
        let (mut reading, horizon) = read_up_to(&mut readings, &Statement::DrawNumber);
        reading.drew(Some((Witness { last_id: horizon.last_id, number: 9 }, HERE)));
        readings.end(&reading);
        assert_ne!(begin(&mut readings).next(), Statement::DrawNumber);
    }

    #[test]
    fn who_has_written_no_record_leads_no_scan_back() {
        for server in [HERE, Server(2)] {
            let mut readings = known();
            let (mut reading, horizon) = read_up_to(&mut readings, &Statement::FindBystanders(vec![8]));
            let last_id = horizon.last_id;
            reading.bystanders_found(Some(Bystanders { server, last_id, numbers: vec![8] }));
            assert!(scan(&mut reading, &horizon).1.is_some());
            readings.end(&reading);

            let mut reading = begin(&mut readings);
            let ended = Horizon { snapshot: Some(Snapshot { end: 9, open: vec![] }), ..horizon };
            let (from, more) = scan(&mut reading, &ended);
            assert!(from > OLD_WITNESS, "it is not asked again, and begins at {from}");
            assert_eq!(more.is_some(), server == HERE);
            if server != HERE {
                assert_eq!(scan(&mut reading, &ended).0, 11, "an answer of another server proves nothing");
            }
        }
    }

    #[test]
    fn a_reading_that_is_too_late_again_and_again_fetches_by_partition() {
        for begins_at_head in [true, false] {
            let mut readings = if begins_at_head { Readings::default() } else { known() };
            let mut reading = begin(&mut readings);
            let mut servers = 2..;
            for _ in 0..MOST_PLANS {
                // Each statement is answered by another server, so that nothing is known.
                let horizon = Horizon { server: Server(servers.next().unwrap()), ..horizon(10, 2, &[]) };
                match reading.next() {
                    Statement::FindHead(_) => {
                        reading.head_found(&Head { first: None, horizon, number: Some(1) });
                    }
                    Statement::ScanById { .. } => {
                        assert_eq!(reading.scanned(LIMIT, (0, None), &horizon), None);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(reading.next(), Statement::FetchByPartition, "begins at the head: {begins_at_head}");
        }
    }

    /// What a database without numbers answers: a full scan up to id 3, which has seen these ids ahead.
    fn seen_ahead(ahead: &[RecordId]) -> Readings {
        let mut readings = Readings::default();
        let mut reading = begin(&mut readings);
        assert_eq!(reading.next(), Statement::FindHead(EVERY));
        let horizon = Horizon { last_id: 90, ahead: ahead.to_vec(), ..Horizon::default() };
        reading.head_found(&Head { first: Some(1), horizon: horizon.clone(), number: None });
        assert!(matches!(reading.next(), Statement::ScanById { from: 1, ahead: None, .. }));
        assert_eq!(reading.scanned(3, (3, Some(3)), &horizon), Some(true));
        readings.end(&reading);
        readings
    }

    #[test]
    fn ids_ahead_are_read_until_none_is_left() {
        let mut readings = seen_ahead(&[2, 50, 60, 70]);
        let reads = |seen: &[RecordId]| {
            let (from, reach) = (seen[0], seen[seen.len() - 1] - seen[0] + 1);
            Statement::ScanById { from, reach, open: Vec::new(), lists: false, ahead: Some(seen.into()) }
        };
        for (seen, last) in [(&[2, 50, 60, 70][..], 50), (&[60, 70], 70)] {
            let mut reading = begin(&mut readings);
            assert_eq!(reading.next(), reads(seen));
            assert_eq!(reading.scanned(3, (1, Some(last)), &Horizon::default()), Some(true));
            readings.end(&reading);
        }
        let next = begin(&mut readings).next();
        assert!(matches!(next, Statement::ScanById { from: 71, ahead: None, .. }), "{next:?}");
    }

    #[test]
    fn ids_ahead_are_dropped_if_none_of_them_is_found_and_wait_for_the_head_of_a_partition() {
        let mut readings = seen_ahead(&[50, 60]);
        let missed: PartitionSet = [Partition::of("a")].into_iter().collect();
        assert_eq!(readings.begin(EVERY, missed, false).next(), Statement::FindHead(missed));
        let mut readings = seen_ahead(&[50, 60]);
        let mut reading = begin(&mut readings);
        assert!(matches!(reading.next(), Statement::ScanById { from: 50, ahead: Some(_), .. }));
        assert_eq!(reading.scanned(3, (0, None), &Horizon::default()), Some(true));
        readings.end(&reading);
        assert!(matches!(begin(&mut readings).next(), Statement::ScanById { from: 4, ahead: None, .. }));
    }

    #[test]
    fn what_is_discarded_is_asked_for_again() {
        let mut readings = known();
        readings.discard();
        assert_eq!(begin(&mut readings).next(), Statement::FindHead(EVERY));
    }

    #[test]
    fn a_fetch_by_partition_that_is_asked_for_comes_next() {
        let mut readings = known();
        readings.fetch_by_partition_next();
        let mut reading = begin(&mut readings);
        assert_eq!(reading.next(), Statement::FetchByPartition);
        readings.end(&reading);
        assert_eq!(scan(&mut begin(&mut readings), &horizon(10, 2, &[])).0, 11);
    }
}
