//! From which id on a fetch must read, so that it need not begin at the head of the table each time.
//!
//! Ids are drawn in order, but become visible in the order of commits: a reader that goes on behind
//! the last id it saw passes over what commits late. An id is *resolved* once its transaction has
//! ended, whichever way. The low watermark only ever moves over ids that are resolved, on evidence from the
//! database: an id that was drawn before transaction `x` got its number is resolved once no transaction
//! below `x` is open. Whatever else can make an earlier id pending again (a lane released, a
//! partition claimed, a record given up by this process) makes the low watermark unknown, and the next
//! fetch asks the database where the head is.

use crate::{partition::PartitionSet, record::RecordId};

/// The least and the most ids that one scan covers.
const LEAST_REACH: i64 = 4_096;
const MOST_REACH: i64 = 65_536;
/// If a scan finds fewer records than one per this many ids, a fetch by partition is cheaper.
const LEAN: i64 = 16;
/// After such a scan this many fetches by partition follow before a scan is tried again.
const BY_PARTITION_FETCHES: u32 = 16;

/// Which server has said something, and of which start of it: another number is another history of ids. A
/// database that has only one history leaves it at the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server(pub i64);

/// How far the ids of a database are decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizon {
    /// Who says so.
    pub server: Server,
    /// The last id that was drawn.
    pub last_id: RecordId,
    /// No transaction with a number below this is open. Not given by a database whose scans see to it
    /// themselves that no id is passed over: then every id that was drawn is resolved.
    pub open_from: Option<i64>,
}

/// The head of the pending set, as the database sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The first pending record, if any.
    pub first: Option<RecordId>,
    /// Its `last_id` was read before `number` was given out.
    pub horizon: Horizon,
    /// The number of a transaction that was given out for this, where numbers count.
    pub number: Option<i64>,
}

/// How to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Each partition by itself, from its head on.
    ByPartition,
    /// First find out where the head is.
    FindHead,
    /// The ids from `from` on, `reach` of them.
    ScanById {
        /// The first id.
        from: RecordId,
        /// How many ids.
        reach: i64,
    },
}

/// Up to where every pending record of the owned partitions is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowWatermark {
    /// The server of all that is known.
    server: Server,
    last_id: RecordId,
    /// Ids up to the first are resolved once no transaction below the second is open.
    waiting: Option<(RecordId, i64)>,
    /// All ids up to here are resolved.
    resolved_to: RecordId,
    next: Option<RecordId>,
    covers: PartitionSet,
    reach: i64,
    by_partition: u32,
    leaves_out: bool,
}

impl LowWatermark {
    /// The last id that is known to have been drawn.
    pub fn last_id(&self) -> RecordId {
        self.last_id
    }

    /// How to fetch from these partitions next.
    pub fn plan(&mut self, owned: PartitionSet) -> Plan {
        if !owned.without(self.covers).is_empty() {
            self.next = None;
        }
        self.covers = owned;
        if self.by_partition > 0 && !self.leaves_out {
            self.by_partition -= 1;
            return Plan::ByPartition;
        }
        let idle = self.waiting.is_none() && self.last_id - self.resolved_to > MOST_REACH;
        self.next.filter(|_| !idle).map_or(Plan::FindHead, |from| self.scan(from))
    }

    /// A record below the low watermark may be pending again.
    pub fn reset(&mut self) {
        self.next = None;
    }

    /// The next fetch is by partition. What is known stays so.
    pub fn fetch_by_partition_next(&mut self) {
        self.by_partition = self.by_partition.max(1);
    }

    /// Whether fetches leave out some handlers whose records may be many. A fetch by partition walks over all of
    /// those each time, a scan only once: so there are scans only.
    pub fn leave_out(&mut self, some: bool) {
        self.leaves_out = some;
    }

    /// A transaction of this process got its number after `last_id` was seen to be drawn. Numbers of
    /// another server say nothing about the ids of this one.
    pub fn wrote(&mut self, last_id: RecordId, number: i64, server: Server) {
        if server == self.server {
            self.waiting.get_or_insert((last_id, number));
        }
    }

    /// The database has told where the head is. Returns how to fetch now, which is never [`Plan::FindHead`].
    pub fn head_found(&mut self, head: Head) -> Plan {
        self.observe(head.horizon);
        let asked_before = self.waiting.is_some();
        if let Some(number) = head.number {
            self.wrote(head.horizon.last_id, number, head.horizon.server);
        }
        if self.resolved_to == 0 && head.number.is_some() {
            // Nothing is known yet. The next query of the head will know more, unless a transaction stays open.
            self.by_partition = if asked_before { BY_PARTITION_FETCHES } else { 0 };
            return Plan::ByPartition;
        }
        let from = head.first.map_or(self.resolved_to + 1, |first| first.min(self.resolved_to + 1));
        self.next = Some(from);
        self.scan(from)
    }

    /// While an open transaction holds it back, most of what lies behind the low watermark is done already:
    /// one scan over all of it costs less than a fetch by partition, which visits the same dead rows in no order.
    fn scan(&self, from: RecordId) -> Plan {
        let behind = if self.is_held_back() { self.last_id - from } else { 0 };
        Plan::ScanById { from, reach: self.reach.max(LEAST_REACH) + behind.max(0) }
    }

    fn is_held_back(&self) -> bool {
        self.waiting.is_some() && self.last_id - self.resolved_to > LEAST_REACH
    }

    /// A scan from `from` over `reach` ids has found `found` records, of at most `limit`, up to the
    /// id `last`. Returns whether there may be more.
    pub fn scanned(
        &mut self,
        (from, reach): (RecordId, i64),
        limit: usize,
        (found, last): (usize, RecordId),
        horizon: Horizon,
    ) -> bool {
        self.observe(horizon);
        let full = found >= limit;
        let complete_to = if full { last } else { from.saturating_add(reach - 1) };
        // The rows and the horizon were read at the same moment, so they agree.
        self.next = self.next.map(|next| next.max(complete_to.min(self.resolved_to) + 1));
        let cut = from.saturating_add(reach) <= horizon.last_id;
        if full || !cut {
            self.reach = if full && (last - from) < reach / 4 { reach / 2 } else { reach }.min(MOST_REACH);
            return full;
        }
        self.reach = (reach * 2).min(MOST_REACH);
        if !self.is_held_back()
            && !self.leaves_out
            && reach >= MOST_REACH
            && i64::try_from(found).unwrap_or(i64::MAX) < reach / LEAN
        {
            (self.by_partition, self.reach, self.next) = (BY_PARTITION_FETCHES, 0, None);
        }
        true
    }

    fn observe(&mut self, horizon: Horizon) {
        if horizon.server != self.server {
            // A failover or a restart, whether a connection has broken or not.
            *self = Self { server: horizon.server, covers: self.covers, ..Self::default() };
        }
        let Some(open_from) = horizon.open_from else {
            self.last_id = self.last_id.max(horizon.last_id);
            self.resolved_to = self.last_id;
            return;
        };
        if horizon.last_id < self.last_id {
            // The sequence has gone back: this is another history than the one that was seen.
            *self = Self { server: self.server, by_partition: self.by_partition, ..Self::default() };
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
    use crate::partition::Partition;

    const LIMIT: usize = 5_000;

    fn horizon(last_id: RecordId, open_from: i64) -> Horizon {
        Horizon { server: Server(1), last_id, open_from: Some(open_from) }
    }

    /// Two queries of the head have found this first record and that the ids up to `last_id` are resolved.
    fn decided(last_id: RecordId, first: Option<RecordId>) -> LowWatermark {
        let mut watermark = LowWatermark::default();
        for number in 1..=2 {
            assert_eq!(watermark.plan(PartitionSet::ALL), Plan::FindHead);
            let horizon = horizon(last_id, number);
            watermark.head_found(Head { first, horizon, number: Some(number) });
        }
        watermark
    }

    /// The next fetch, which is a scan that finds so many records up to an id. Returns its first id, its
    /// reach, and whether there may be more.
    fn scan(
        watermark: &mut LowWatermark,
        found: (usize, RecordId),
        horizon: Horizon,
    ) -> (RecordId, i64, bool) {
        match watermark.plan(PartitionSet::ALL) {
            Plan::ScanById { from, reach } => {
                (from, reach, watermark.scanned((from, reach), LIMIT, found, horizon))
            }
            plan => panic!("{plan:?}"),
        }
    }

    #[test]
    fn an_id_is_resolved_once_nothing_older_than_its_witness_is_open() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(14, 2));
        watermark.wrote(14, 7, Server(1));
        for (open_from, from) in [(6, 11), (7, 11), (7, 15)] {
            assert_eq!(scan(&mut watermark, (0, 0), horizon(20, open_from)).0, from);
        }
    }

    #[test]
    fn the_first_witness_is_waited_for() {
        let mut watermark = decided(10, None);
        scan(&mut watermark, (0, 0), horizon(14, 2));
        // Writes come faster than the oldest transaction ends.
        for number in 7..20 {
            watermark.wrote(number + 7, number, Server(1));
            assert_eq!(
                scan(&mut watermark, (0, 0), horizon(number + 8, 7)).0,
                if number == 7 { 11 } else { 15 }
            );
        }
    }

    #[test]
    fn without_numbers_every_id_that_was_drawn_is_resolved() {
        let mut watermark = LowWatermark::default();
        assert_eq!(watermark.plan(PartitionSet::ALL), Plan::FindHead);
        let horizon = Horizon { server: Server(1), last_id: 10, open_from: None };
        let plan = watermark.head_found(Head { first: Some(4), horizon, number: None });
        assert_eq!(plan, Plan::ScanById { from: 4, reach: LEAST_REACH });
        scan(&mut watermark, (1, 4), Horizon { last_id: 12, ..horizon });
        assert_eq!(scan(&mut watermark, (0, 0), horizon).0, 13, "it does not go back with the last row");
    }

    #[test]
    fn a_full_scan_moves_to_its_last_id() {
        let mut watermark = decided(100_000, Some(1));
        let horizon = horizon(100_000, 3);
        assert_eq!(scan(&mut watermark, (LIMIT, 57), horizon), (1, LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (LIMIT - 1, 90), horizon), (58, LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (0, 0), horizon), (58 + LEAST_REACH, 2 * LEAST_REACH, true));
        assert_eq!(scan(&mut watermark, (0, 0), horizon).0, 58 + 3 * LEAST_REACH);
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
            assert_eq!(watermark.plan(PartitionSet::ALL), Plan::ByPartition);
        }
        assert_eq!(watermark.plan(PartitionSet::ALL), Plan::FindHead);
        // One in sixteen is worth it.
        let mut watermark = decided(1_000_000, Some(1));
        let rich = (0..10).map(|_| scan(&mut watermark, (4_096, 1), horizon(1_000_000, 3)).1).max();
        assert_eq!(rich, Some(MOST_REACH));
    }

    #[test]
    fn a_sequence_that_goes_back_starts_anew() {
        let mut watermark = decided(10_000, None);
        assert_eq!(scan(&mut watermark, (0, 0), horizon(5, 900)).0, 10_001);
        assert_eq!((watermark.last_id(), watermark.resolved_to), (5, 0));
        assert_eq!(watermark.plan(PartitionSet::ALL), Plan::FindHead);
    }

    #[test]
    fn what_one_server_has_said_is_not_taken_for_another() {
        let mut watermark = decided(10_000, None);
        watermark.waiting = None;
        watermark.wrote(10_000, 7, Server(2));
        assert_eq!(watermark.waiting, None, "a number of another server");
        // Another has taken over, and has more ids than the first: nothing else tells.
        let other = Horizon { server: Server(2), ..horizon(20_000, 900) };
        assert_eq!(scan(&mut watermark, (0, 0), other).0, 10_001);
        assert_eq!((watermark.resolved_to, watermark.server), (0, Server(2)));
        assert_eq!(watermark.plan(PartitionSet::ALL), Plan::FindHead);
    }

    #[test]
    fn a_partition_that_was_not_covered_asks_for_the_head_again() {
        let (a, b) = (Partition::of("a"), Partition::of("b"));
        let mut watermark = decided(10, None);
        let mut plan = |partitions: &[Partition]| watermark.plan(partitions.iter().copied().collect());
        let on = Plan::ScanById { from: 11, reach: LEAST_REACH };
        assert_eq!([plan(&[a, b]), plan(&[a]), plan(&[a])], [on, on, on]);
        assert_eq!(plan(&[a, b]), Plan::FindHead, "what was away may have come back with older records");
    }
}
