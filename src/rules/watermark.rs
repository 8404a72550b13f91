//! The id at which a fetch must begin, so that not every fetch begins at the head of the table.
//!
//! Ids are drawn in order, but become visible in the order of commits: a reader that goes on behind the last
//! id it saw misses records that are committed late. An id is *resolved* once its transaction has ended, by
//! commit or by rollback. The low watermark moves only over resolved ids, on evidence from the database: an
//! id that was drawn before transaction `x` got its number is resolved once no transaction below `x` is open.
//! While such a transaction stays open, [`witnesses`](super::witnesses) show how far a fetch may go on behind
//! the low watermark. Other events can make an earlier id pending again: a lane is released, a partition is
//! claimed, this process gives up a record. Their partitions become unknown, and the next fetch asks the
//! database for their head.

use std::sync::Arc;

use super::{
    horizon::{Bystanders, Head, Horizon, Server},
    witnesses::{Witness, Witnesses},
};
use crate::{partition::PartitionSet, record::RecordId};

/// The least and the most ids that one scan covers.
const LEAST_REACH: i64 = 4_096;
const MOST_REACH: i64 = 65_536;
/// If a scan finds fewer records than one per this many ids, a fetch by partition is cheaper.
const LEAN: i64 = 16;
/// The number of fetches by partition after such a scan, before a scan is tried again.
const BY_PARTITION_FETCHES: u32 = 16;
/// If the newest witness is this many ids old, a fetch draws another.
pub(super) const OLD_WITNESS: i64 = 16_384;

/// How to fetch next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Read each partition from its head.
    ByPartition,
    /// Find the head of these partitions first.
    FindHead(PartitionSet),
    /// Scan `reach` ids from `from` on.
    ScanById {
        /// The first id.
        from: RecordId,
        /// The number of ids.
        reach: i64,
    },
    /// Read the ids that the last scan has seen ahead.
    ReadAhead,
    /// Scan the ids from `from` on that were not seen, and `reach` ids behind what was read.
    ScanOthers {
        /// The first id.
        from: RecordId,
        /// The number of ids behind what was read.
        reach: i64,
    },
}

/// The low watermark: all pending records of the owned partitions up to it are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LowWatermark {
    /// The server of all knowledge. Set by `observe`.
    server: Server,
    /// The last id that is known to be drawn. Set by `observe`.
    last_id: RecordId,
    /// An id and a number: ids up to the id are resolved once no transaction below the number is open. Set by
    /// `wrote`, cleared by `observe`.
    waiting: Option<(RecordId, i64)>,
    /// All ids up to this one are resolved. Raised by `observe`.
    resolved_to: RecordId,
    /// The first id that resolved ids leave to read. `None` if it is unknown.
    next: Option<RecordId>,
    /// The bounds by which fetches may go on behind the low watermark.
    witnesses: Witnesses,
    /// The highest id that scans have read. Raised by `scanned`, reset when knowledge is lost.
    furthest: RecordId,
    /// The last id at the last query for bystanders, and its result, which the next scan takes.
    asked_at: RecordId,
    bystanders: Option<Bystanders>,
    /// The ids that the last scan has seen in addition to its records. All that may have to come before these
    /// records was committed when the scan read below, so that they are read without reading below again. Set by
    /// `scanned` and `read_ahead`, dropped when knowledge is lost.
    ahead: Arc<[RecordId]>,
    /// The partitions that this knowledge holds for. Set by `plan` and `head_found`, lowered by `reset`.
    covers: PartitionSet,
    /// The ids that the next scan covers at least. Adapted by `scanned`.
    reach: i64,
    /// The number of fetches by partition before the next scan. Counted down by `plan`.
    by_partition: u32,
    /// Whether fetches leave out some handlers. Set by `leave_out`.
    leaves_out: bool,
}

impl LowWatermark {
    /// The last id that is known to be drawn, and its server.
    pub(super) fn last_id(&self) -> (RecordId, Server) {
        (self.last_id, self.server)
    }

    /// How to fetch from the owned partitions next.
    pub(super) fn plan(&mut self, owned: PartitionSet) -> Plan {
        let unknown = owned.without(self.covers);
        self.covers = owned.without(unknown);
        if self.by_partition > 0 && !self.leaves_out {
            self.by_partition -= 1;
            return Plan::ByPartition;
        }
        match self.first() {
            None => Plan::FindHead(owned),
            Some(_) if !unknown.is_empty() => Plan::FindHead(unknown),
            Some(_) if !self.ahead.is_empty() => Plan::ReadAhead,
            Some(from) => self.scan(from),
        }
    }

    /// The ids to read ahead.
    pub(super) fn ahead(&self) -> Arc<[RecordId]> {
        Arc::clone(&self.ahead)
    }

    /// Takes the result of reading ahead: the id of the last record. The ids behind it are left, unless there was
    /// no record.
    pub(super) fn read_ahead(&mut self, last: Option<RecordId>) {
        let left = self.ahead.iter().copied().filter(|id| last.is_some_and(|last| *id > last));
        self.ahead = left.collect();
        self.next = self.next.max(last.map(|last| last + 1));
    }

    /// Makes these partitions unknown: a record of theirs below the low watermark may be pending again.
    pub(super) fn reset(&mut self, partitions: PartitionSet) {
        self.covers = self.covers.without(partitions);
    }

    /// Makes the next fetch one by partition. All knowledge is kept.
    pub(super) fn fetch_by_partition_next(&mut self) {
        self.by_partition = self.by_partition.max(1);
    }

    /// Sets whether fetches leave out handlers that may have many records. A fetch by partition would walk
    /// over these records each time, a scan only once: all fetches are then scans.
    pub(super) fn leave_out(&mut self, some: bool) {
        self.leaves_out = some;
    }

    /// Whether to draw a number, so that the next fetch need not go back far.
    pub(super) fn wants_number(&self) -> bool {
        let old = |witness: Witness| self.last_id - witness.last_id > OLD_WITNESS;
        self.witnesses.newest().is_some_and(old)
    }

    /// The transactions whose end would move a scan far back if they have written records. The caller asks
    /// the database whether they have.
    pub(super) fn wants_bystanders(&mut self) -> Vec<i64> {
        if self.last_id - self.asked_at < OLD_WITNESS {
            return Vec::new();
        }
        self.asked_at = self.last_id;
        self.witnesses.may_lower(self.furthest.saturating_sub(OLD_WITNESS))
    }

    /// Takes the bystanders found. The snapshot of the next scan shows which of them are still open.
    pub(super) fn found_bystanders(&mut self, found: Bystanders) {
        self.bystanders = Some(found).filter(|found| found.server == self.server);
    }

    /// A transaction of this process got its number after `last_id` was drawn. A number of another
    /// server proves nothing about the ids of this one.
    pub(super) fn wrote(&mut self, last_id: RecordId, number: i64, server: Server) {
        if server == self.server {
            self.waiting.get_or_insert((last_id, number));
            self.witnesses.add(Witness { last_id, number });
        }
    }

    /// Takes the head of some of the owned partitions. Returns how to fetch now.
    pub(super) fn head_found(&mut self, of: PartitionSet, owned: PartitionSet, head: &Head) -> Plan {
        let horizon = &head.horizon;
        self.observe(horizon);
        let asked_before = self.waiting.is_some();
        if let Some(number) = head.number {
            self.wrote(horizon.last_id, number, horizon.server);
            self.observe(horizon);
        }
        if horizon.last_id == 0 && head.number.is_some() {
            // There is no evidence: sessions draw ids in advance, or no id was drawn yet.
            self.by_partition = if asked_before { BY_PARTITION_FETCHES } else { 0 };
            self.unknown();
            return Plan::ByPartition;
        }
        if self.first().is_none() {
            if of != owned {
                return Plan::FindHead(owned);
            }
            let read_to = head.first.map_or(horizon.last_id, |first| first.saturating_sub(1));
            if let Some(snapshot) = &horizon.snapshot {
                self.witnesses.lower(read_to.saturating_add(1));
                self.witnesses.read(snapshot, read_to);
            }
            self.next = self.is_resolved_at_all().then(|| self.resolved_to.min(read_to) + 1);
            self.furthest = read_to;
        } else if let Some(first) = head.first {
            self.next = self.next.map(|next| next.min(first));
            self.witnesses.lower(first);
        }
        self.covers = owned;
        self.first().map_or(Plan::ByPartition, |from| self.scan(from))
    }

    /// Whether the next scan lists the ids that it sees.
    pub(super) fn lists(&self) -> bool {
        self.witnesses.lists()
    }

    /// The ids from this one on that were not seen: `reach` of them at most, so that one scan does not read all rows of a
    /// large transaction. If these are all, also `reach` ids behind what was read.
    pub(super) fn others(&self, from: RecordId, reach: i64) -> Vec<(RecordId, RecordId)> {
        let (mut others, mut left) = (Vec::new(), reach);
        for (first, last) in self.witnesses.others(from).unwrap_or_default() {
            let last = last.min(first.saturating_add(left - 1));
            others.push((first, last));
            left -= last - first + 1;
            if left <= 0 {
                return others;
            }
        }
        let top = self.witnesses.top().unwrap_or(from - 1);
        let (behind, end) = (top.saturating_add(1), top.saturating_add(reach));
        match others.last_mut().filter(|(_, last)| last.saturating_add(1) == behind) {
            Some((_, last)) => *last = end,
            None => others.push((behind, end)),
        }
        others
    }

    /// The last of [`LowWatermark::others`].
    pub(super) fn end_of_others(&self, from: RecordId, reach: i64) -> RecordId {
        self.others(from, reach).last().map_or(from - 1, |(_, last)| *last)
    }

    /// The transactions whose end makes a scan from this id begin too late, so that its result is discarded.
    pub(super) fn may_lower(&self, from: RecordId) -> Vec<i64> {
        match self.next {
            Some(next) if from <= next => Vec::new(),
            _ => self.witnesses.may_lower(from),
        }
    }

    /// How to fetch instead, if a scan from this id has begun too late for its horizon. `None` if the scan
    /// counts.
    pub(super) fn begins_too_late(
        &mut self,
        from: RecordId,
        horizon: &Horizon,
        owned: PartitionSet,
    ) -> Option<Plan> {
        let Some(snapshot) = &horizon.snapshot else { return None };
        self.observe(horizon);
        let resolved = self.next;
        if resolved.is_some_and(|next| from <= next) {
            return None;
        }
        let first = self.witnesses.first_under(snapshot);
        if first.is_some_and(|first| from <= first) {
            return None;
        }
        if first.is_none() {
            self.witnesses.reset();
        }
        Some(match first.max(resolved) {
            Some(from) => self.scan(from),
            None => Plan::FindHead(owned),
        })
    }

    /// The first id of the next scan: the higher of the two known bounds.
    fn first(&self) -> Option<RecordId> {
        self.next.max(self.witnesses.beginning())
    }

    fn is_resolved_at_all(&self) -> bool {
        self.resolved_to > 0 || self.waiting.is_none()
    }

    fn unknown(&mut self) {
        self.next = None;
        self.ahead = Arc::default();
        self.witnesses.reset();
        self.furthest = 0;
    }

    /// If no witness gives a bound, one scan over all ids behind the low watermark costs less than a fetch by
    /// partition, which visits the same dead rows in no order.
    fn scan(&self, from: RecordId) -> Plan {
        let reach = self.reach.max(LEAST_REACH);
        if self.witnesses.others(from).is_some() {
            return Plan::ScanOthers { from, reach };
        }
        let alone = self.is_held_back() && self.witnesses.first().is_none();
        let behind = if alone { self.last_id - from } else { 0 };
        Plan::ScanById { from, reach: reach + behind.max(0) }
    }

    fn is_held_back(&self) -> bool {
        self.waiting.is_some() && self.last_id - self.resolved_to > LEAST_REACH
    }

    /// Takes the result of a scan that has not begun too late: of the ids from `from` to `end`, the last `reach`
    /// of which it has read for the first time, it has found `found` records, of at most `limit`, up to the id
    /// `last`. Of the ids that it sees it has listed at most `listed`. Returns whether there may be more.
    pub(super) fn scanned(
        &mut self,
        (from, end, reach): (RecordId, RecordId, i64),
        (limit, listed): (usize, usize),
        (found, last): (usize, RecordId),
        horizon: &Horizon,
    ) -> bool {
        self.observe(horizon);
        let full = found >= limit;
        let mut complete_to = if full { last } else { end };
        self.ahead = horizon.ahead.as_slice().into();
        // What is not listed would count as not seen. The records behind the list are in memory by then.
        if let Some(end) = horizon.visible.last().filter(|_| horizon.visible.len() >= listed) {
            complete_to = complete_to.min(*end);
        }
        // Ids are scanned again because a transaction has ended. Such a scan finds few records, and does not
        // show that scans are too dear.
        let again = complete_to < self.furthest;
        self.complete(from, complete_to, horizon);
        let cut = end < horizon.last_id;
        if full || !cut {
            self.reach = if full && (last - from) < reach / 4 { reach / 2 } else { reach }.min(MOST_REACH);
            return full;
        }
        self.reach = (reach * 2).min(MOST_REACH);
        if !self.is_held_back()
            && !self.leaves_out
            && !again
            && reach >= MOST_REACH
            && i64::try_from(found).unwrap_or(i64::MAX) < reach / LEAN
        {
            (self.by_partition, self.reach) = (BY_PARTITION_FETCHES, 0);
            self.unknown();
        }
        true
    }

    /// All pending records from `from` to `complete_to` were read at this horizon.
    fn complete(&mut self, from: RecordId, complete_to: RecordId, horizon: &Horizon) {
        // The rows and the horizon are of the same moment, so they agree.
        let next = self.is_resolved_at_all().then(|| complete_to.min(self.resolved_to) + 1);
        self.next = self.next.max(next);
        self.furthest = self.furthest.max(complete_to.min(horizon.last_id));
        let Some(snapshot) = &horizon.snapshot else { return };
        // Ids that are not drawn yet count for nothing.
        let complete_to = complete_to.min(horizon.last_id.max(from.saturating_sub(1)));
        self.witnesses.read(snapshot, complete_to);
        let within = horizon.visible.partition_point(|id| *id <= complete_to);
        self.witnesses.see(&horizon.visible[..within]);
        if let Some(Bystanders { numbers, last_id, .. }) = self.bystanders.take() {
            self.witnesses.stand_by(&numbers, last_id);
        }
    }

    fn observe(&mut self, horizon: &Horizon) {
        if horizon.server != self.server {
            // A failover or a restart, with or without a broken connection.
            *self = Self { server: horizon.server, ..Self::default() };
        }
        let Some(open_from) = horizon.open_from() else {
            self.last_id = self.last_id.max(horizon.last_id);
            self.resolved_to = self.last_id;
            return;
        };
        if horizon.last_id < self.last_id {
            // The sequence has gone back: ids have another history than the known one.
            *self = Self { server: self.server, ..Self::default() };
        }
        self.last_id = horizon.last_id;
        if let Some((last_id, _)) = self.waiting.filter(|(_, number)| *number <= open_from) {
            self.resolved_to = self.resolved_to.max(last_id);
            self.waiting = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{partition::Partition, rules::witnesses::Snapshot};

    const LIMIT: usize = 5_000;

    fn horizon(last_id: RecordId, open_from: i64) -> Horizon {
        let snapshot = Some(Snapshot { end: open_from, open: Vec::new() });
        Horizon { server: Server(1), last_id, snapshot, ..Horizon::default() }
    }

    const EVERY: PartitionSet = PartitionSet::ALL;

    /// A watermark after a query of the head that has found this first record, with the ids up to `last_id`
    /// resolved.
    fn decided(last_id: RecordId, first: Option<RecordId>) -> LowWatermark {
        let mut watermark = LowWatermark::default();
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
        let head = Head { first, horizon: horizon(last_id, 2), number: Some(1) };
        watermark.head_found(EVERY, EVERY, &head);
        watermark
    }

    /// The next fetch, which is a scan that finds this many records up to an id. Returns the first id, the
    /// reach, and whether there may be more.
    fn scan(
        watermark: &mut LowWatermark,
        found: (usize, RecordId),
        horizon: Horizon,
    ) -> (RecordId, i64, bool) {
        match watermark.plan(EVERY) {
            Plan::ScanById { from, reach } => {
                assert_eq!(watermark.begins_too_late(from, &horizon, EVERY), None);
                (from, reach, watermark.scanned((from, from + reach - 1, reach), (LIMIT, 1), found, &horizon))
            }
            plan => panic!("{plan:?}"),
        }
    }

    #[test]
    fn an_id_is_resolved_once_nothing_older_than_its_witness_is_open() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(14, 2));
        watermark.wrote(14, 7, Server(1));
        for (open_from, next) in [(6, 11), (7, 15), (7, 15)] {
            scan(&mut watermark, (0, 0), horizon(20, open_from));
            assert_eq!(watermark.next, Some(next));
        }
    }

    #[test]
    fn the_first_witness_is_waited_for() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(14, 2));
        // Writes come faster than the oldest transaction ends.
        for number in 7..20 {
            watermark.wrote(number + 7, number, Server(1));
            scan(&mut watermark, (0, 0), horizon(number + 8, 7));
            assert_eq!(watermark.next, Some(15));
        }
    }

    #[test]
    fn without_numbers_every_id_that_was_drawn_is_resolved() {
        let mut watermark = LowWatermark::default();
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
        let horizon = Horizon { server: Server(1), last_id: 10, ..Horizon::default() };
        let head = Head { first: Some(4), horizon: horizon.clone(), number: None };
        assert_eq!(watermark.head_found(EVERY, EVERY, &head), Plan::ScanById { from: 4, reach: LEAST_REACH });
        scan(&mut watermark, (1, 4), Horizon { last_id: 12, ..horizon.clone() });
        assert_eq!(scan(&mut watermark, (0, 0), horizon).0, 13, "it does not go back with the last row");
    }

    #[test]
    fn a_full_scan_moves_to_its_last_id() {
        let mut watermark = decided(100_000, Some(1));
        let horizon = || horizon(100_000, 3);
        assert_eq!(scan(&mut watermark, (LIMIT, 57), horizon()), (1, LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (LIMIT - 1, 90), horizon()), (58, LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (0, 0), horizon()), (58 + LEAST_REACH, 2 * LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (0, 0), horizon()).0, 58 + 3 * LEAST_REACH);
    }

    #[test]
    fn lean_scans_give_way_to_fetches_by_partition_and_come_back() {
        let mut watermark = decided(1_000_000, Some(1));
        let mut reaches = Vec::new();
        while watermark.by_partition == 0 {
            reaches.push(scan(&mut watermark, (10, 1), horizon(1_000_000, 3)).1);
        }
        assert_eq!(reaches, [4_096, 8_192, 16_384, 32_768, 65_536]);
        for _ in 0..BY_PARTITION_FETCHES {
            assert_eq!(watermark.plan(EVERY), Plan::ByPartition);
        }
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
        // One record per sixteen ids is worth a scan.
        let mut watermark = decided(1_000_000, Some(1));
        let rich = (0..10).map(|_| scan(&mut watermark, (4_096, 1), horizon(1_000_000, 3)).1).max();
        assert_eq!(rich, Some(MOST_REACH));
    }

    #[test]
    fn a_scan_that_is_full_early_halves_the_reach() {
        let mut watermark = decided(200_000, Some(1));
        let horizon = || horizon(200_000, 3);
        while watermark.reach < 16_384 {
            scan(&mut watermark, (0, 0), horizon());
        }
        let (from, reach, _) = scan(&mut watermark, (LIMIT, 12_288 + 4_095), horizon());
        assert_eq!((from, reach, watermark.reach), (12_289, 16_384, 8_192));
        let (from, ..) = scan(&mut watermark, (LIMIT, 16_384 + 2_048), horizon());
        assert_eq!((from, watermark.reach), (16_384, 8_192), "a quarter of it is not early");
    }

    #[test]
    fn a_scan_to_the_last_id_keeps_the_reach() {
        let mut watermark = decided(6_000, Some(1));
        for reach in [LEAST_REACH, 2 * LEAST_REACH, 2 * LEAST_REACH] {
            assert_eq!(scan(&mut watermark, (0, 0), horizon(6_000, 3)).1, reach);
        }
    }

    #[test]
    fn the_low_watermark_is_known_while_a_new_number_is_waited_for() {
        let mut watermark = decided(1_000_000, Some(1));
        while watermark.by_partition == 0 {
            scan(&mut watermark, (10, 1), horizon(1_000_000, 3));
        }
        watermark.by_partition = 0;
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
        let head = Head { first: Some(5), horizon: horizon(1_000_000, 3), number: Some(9) };
        watermark.head_found(EVERY, EVERY, &head);
        assert_eq!((watermark.next, watermark.waiting), (Some(5), Some((1_000_000, 9))));
    }

    #[test]
    fn a_scan_covers_all_behind_the_low_watermark_only_if_it_is_held_back() {
        let from_1 = |last_id, wrote: bool| {
            let mut watermark = decided(10_000, Some(1));
            scan(&mut watermark, (LIMIT, 1), horizon(last_id, 2));
            if wrote {
                watermark.wrote(last_id, 7, Server(1));
            }
            watermark.witnesses.reset();
            watermark.plan(EVERY)
        };
        let least = Plan::ScanById { from: 2, reach: LEAST_REACH };
        assert_eq!(from_1(20_000, false), least, "nothing is waited for");
        assert_eq!(from_1(10_000 + LEAST_REACH, true), least, "it is not far behind");
        let all = Plan::ScanById { from: 2, reach: LEAST_REACH + 10_000 + LEAST_REACH - 1 };
        assert_eq!(from_1(10_001 + LEAST_REACH, true), all);
    }

    /// The low watermark waits for a transaction, and no witness tells how far a fetch may go on.
    #[test]
    fn with_nothing_else_known_one_scan_covers_all_behind_the_low_watermark() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(10_000, 2));
        watermark.wrote(10_000, 7, Server(1));
        watermark.witnesses.reset();
        assert_eq!(watermark.plan(EVERY), Plan::ScanById { from: 11, reach: 2 * LEAST_REACH + 9_989 });
    }

    /// If some handlers are left out, no fetch is by partition: each would walk over all their records.
    #[test]
    fn a_fetch_by_partition_is_asked_for_once() {
        let mut watermark = decided(10, None);
        let scan = Plan::ScanById { from: 11, reach: LEAST_REACH };
        watermark.fetch_by_partition_next();
        watermark.fetch_by_partition_next();
        assert_eq!([watermark.plan(EVERY), watermark.plan(EVERY)], [Plan::ByPartition, scan]);
        watermark.leave_out(true);
        watermark.fetch_by_partition_next();
        assert_eq!(watermark.plan(EVERY), scan);
        watermark.leave_out(false);
        assert_eq!(watermark.plan(EVERY), Plan::ByPartition);
    }

    #[test]
    fn what_lies_behind_an_open_transaction_is_not_read_again_before_it_ends() {
        let mut watermark = decided(10, None);
        watermark.wrote(10, 7, Server(1));
        let open = |last_id, end, open: &[i64]| {
            let snapshot = Some(Snapshot { end, open: open.to_vec() });
            Horizon { server: Server(1), last_id, snapshot, ..Horizon::default() }
        };
        // Number 8 stays open, and draws one id or none.
        for number in 9..1_000 {
            scan(&mut watermark, (0, 0), open(number * 1_000, number, &[8]));
            watermark.wrote(number * 1_000, number, Server(1));
        }
        let (from, ..) = scan(&mut watermark, (0, 0), open(1_000_000, 1_000, &[8]));
        assert!(from > 990_000, "{from}");
        assert!(watermark.next.is_some_and(|next| next <= 10_000), "{:?}", watermark.next);
        // Number 8 ends: scans without its records are discarded, and its records are in reach of some scans.
        let Plan::ScanById { from, .. } = watermark.plan(EVERY) else { panic!("it is known") };
        assert_eq!(watermark.may_lower(from), [8]);
        let ended = open(1_000_000, 1_001, &[]);
        let plan = watermark.begins_too_late(from, &ended, EVERY);
        assert_eq!(plan, Some(Plan::ScanById { from: 11, reach: 2 * LEAST_REACH }));
        assert_eq!(watermark.begins_too_late(11, &ended, EVERY), None);
        let mut more =
            watermark.scanned((11, 10 + 2 * LEAST_REACH, 2 * LEAST_REACH), (LIMIT, 1), (0, 0), &ended);
        let mut scans = 1;
        while more {
            more = scan(&mut watermark, (0, 0), ended.clone()).2;
            scans += 1;
        }
        assert!(scans < 25, "{scans}");
        assert_eq!(watermark.by_partition, 0, "that nothing was found there tells nothing of others");
    }

    #[test]
    fn a_scan_looks_at_a_bounded_number_of_ids_that_were_not_seen() {
        let mut watermark = decided(10, None);
        watermark.witnesses.read(&Snapshot { end: 40, open: vec![15] }, 100_000);
        watermark.witnesses.see(&[20_000, 20_001, 90_000]);
        let end = 1_000 + LEAST_REACH - 1;
        assert_eq!(watermark.others(1_000, LEAST_REACH), [(1_000, end)]);
        assert_eq!(watermark.end_of_others(1_000, LEAST_REACH), end);
        let end = 20_001 + LEAST_REACH - 1_000;
        assert_eq!(watermark.others(19_000, LEAST_REACH), [(19_000, 19_999), (20_002, end)]);
        let end = 100_000 + MOST_REACH;
        assert_eq!(watermark.others(89_900, MOST_REACH), [(89_900, 89_999), (90_001, end)]);
    }

    #[test]
    fn an_old_witness_is_replaced() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(10 + OLD_WITNESS, 3));
        assert!(!watermark.wants_number());
        scan(&mut watermark, (0, 0), horizon(11 + OLD_WITNESS, 3));
        assert!(watermark.wants_number());
        watermark.wrote(11 + OLD_WITNESS, 4, Server(1));
        assert!(!watermark.wants_number());
    }

    #[test]
    fn what_is_older_than_the_first_witness_asks_for_the_head_when_it_ends() {
        let mut watermark = LowWatermark::default();
        watermark.plan(EVERY);
        let snapshot = |open: &[i64]| Some(Snapshot { end: 6, open: open.to_vec() });
        let open = Horizon { server: Server(1), last_id: 10, snapshot: snapshot(&[3]), ..Horizon::default() };
        let head = Head { first: Some(8), horizon: open.clone(), number: Some(5) };
        assert_eq!(watermark.head_found(EVERY, EVERY, &head), Plan::ScanById { from: 8, reach: LEAST_REACH });
        assert_eq!(watermark.begins_too_late(8, &open, EVERY), None);
        let ended = Horizon { snapshot: snapshot(&[]), ..open };
        assert_eq!(watermark.begins_too_late(8, &ended, EVERY), Some(Plan::FindHead(EVERY)));
    }

    #[test]
    fn a_sequence_that_goes_back_starts_anew() {
        let mut watermark = decided(10_000, None);
        let back = horizon(5, 900);
        assert_eq!(watermark.begins_too_late(10_001, &back, EVERY), Some(Plan::FindHead(EVERY)));
        assert_eq!((watermark.last_id(), watermark.resolved_to), ((5, Server(1)), 0));
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
    }

    #[test]
    fn what_one_server_has_said_is_not_taken_for_another() {
        let mut watermark = decided(10_000, None);
        watermark.wrote(20_000, 7, Server(2));
        assert_eq!((watermark.waiting, watermark.witnesses.newest().unwrap().number), (None, 1));
        // Another server has taken over and has more ids than the first. Only the number of the server shows
        // it. The records of the new server below the id read so far are unknown.
        let other = Horizon { server: Server(2), ..horizon(20_000, 900) };
        assert_eq!(watermark.begins_too_late(10_001, &other, EVERY), Some(Plan::FindHead(EVERY)));
        assert_eq!((watermark.resolved_to, watermark.server), (0, Server(2)));
        assert_eq!(watermark.plan(EVERY), Plan::FindHead(EVERY));
    }

    #[test]
    fn a_partition_that_was_not_covered_asks_for_its_head_alone() {
        let (a, b) = (Partition::of("a"), Partition::of("b"));
        let of = |partitions: &[Partition]| partitions.iter().copied().collect::<PartitionSet>();
        let mut watermark = decided(10, None);
        let on = Plan::ScanById { from: 11, reach: LEAST_REACH };
        assert_eq!([&[a, b][..], &[a], &[a]].map(|owned| watermark.plan(of(owned))), [on, on, on]);
        let plan = watermark.plan(of(&[a, b]));
        assert_eq!(plan, Plan::FindHead(of(&[b])), "what was away may have come back with older records");
        let head = Head { first: Some(4), horizon: horizon(10, 3), number: Some(2) };
        let back = Plan::ScanById { from: 4, reach: LEAST_REACH };
        assert_eq!(watermark.head_found(of(&[b]), of(&[a, b]), &head), back);
        watermark.reset(of(&[a]));
        assert_eq!(watermark.plan(of(&[a, b])), Plan::FindHead(of(&[a])));
    }
}
