//! The id at which a fetch must begin while transactions stay open.
//!
//! The low watermark waits for the oldest transaction of the server. The ids behind it were read before, and
//! only transactions that have ended *since* can add records to them. A *witness* bounds the ids of these
//! records: the last id `l` was read, then number `n` was drawn. A transaction gets its number before it
//! draws an id, so a transaction with number `n` or above draws only ids above `l`.
//!
//! A fetch remembers its snapshot and how far it has read. The next fetch begins behind that id, or at the
//! least id of the transactions that its own snapshot sees and the old one does not. The fetch before saw all
//! records below. Both snapshots are those of the statements that read the records: with a snapshot of
//! another moment, a later record could pass an earlier one that became visible in between.

use super::id_ranges::IdRanges;
use crate::record::RecordId;

/// The most witnesses that are kept. With fewer witnesses, bounds are lower, but never wrong.
const MOST_WITNESSES: usize = 8;

/// The most ids by which a fetch begins earlier because the end of an open transaction would move it there.
/// To walk over so many ids costs less than to repeat a statement that has begun too late, or to leave ids out.
const NEAR: i64 = 128;

/// If an open transaction may have drawn an id that is more than so many ids back, scans list what they see. To walk
/// over fewer ids costs less than the lists.
const FAR: i64 = 4_096;

/// Which transactions a statement sees as ended, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The end: transactions from this number on are not seen, whether they have begun or not.
    pub end: i64,
    /// The open transactions below the end, which are not seen. In ascending order.
    pub open: Vec<i64>,
}

impl Snapshot {
    /// Whether a transaction had ended. If it had committed, its writes are seen.
    pub fn sees(&self, number: i64) -> bool {
        number < self.end && self.open.binary_search(&number).is_err()
    }

    /// The lowest number that is not seen.
    pub fn open_from(&self) -> i64 {
        self.open.first().map_or(self.end, |first| self.end.min(*first))
    }
}

/// A last id that was read before a number was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The last id that was drawn.
    pub last_id: RecordId,
    /// The number of a transaction, drawn afterwards.
    pub number: i64,
}

/// The extent of the last complete fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    /// The end of the fetch's snapshot.
    end: i64,
    /// The transactions that were open, and the least id that each may draw. `None` means any id.
    open: Vec<(i64, Option<RecordId>)>,
    /// All pending records up to this id that the snapshot sees were read by this fetch or before.
    to: RecordId,
}

/// The witnesses, and the extent of the last fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witnesses {
    /// The witnesses, ascending by numbers and ids.
    ladder: Vec<Witness>,
    read: Option<Read>,
    /// Ids whose rows were seen, while a transaction stays open that may have drawn an id far below.
    seen: IdRanges,
}

impl Witnesses {
    /// Adds a witness, unless the newest one is as new.
    pub fn add(&mut self, witness: Witness) {
        let newer = |last: &Witness| last.number < witness.number && last.last_id < witness.last_id;
        if !self.ladder.last().is_none_or(newer) {
            return;
        }
        if self.ladder.len() >= MOST_WITNESSES {
            // The first witness stays: it bounds the transactions that the last snapshot does not see.
            self.ladder.remove(MOST_WITNESSES / 2);
        }
        self.ladder.push(witness);
    }

    /// The newest witness.
    pub fn newest(&self) -> Option<Witness> {
        self.ladder.last().copied()
    }

    /// The least id that transactions from this number on may draw. `None` means any id.
    fn least_id(&self, number: i64) -> Option<RecordId> {
        let witness = self.ladder.iter().rev().find(|witness| witness.number <= number);
        witness.map(|witness| witness.last_id.saturating_add(1))
    }

    /// The id at which the next fetch may begin, unless open transactions have ended: see
    /// [`Witnesses::first_under`]. `None` if it is unknown.
    pub fn first(&self) -> Option<RecordId> {
        let read = self.read.as_ref()?;
        Some(read.to.saturating_add(1)).min(self.least_id(read.end))
    }

    /// The id at which the next fetch begins: [`Witnesses::first`], or up to 128 ids earlier, so that the fetch has
    /// not begun too late if transactions end that have drawn ids near it. `None` if it is unknown.
    pub fn beginning(&self) -> Option<RecordId> {
        let first = self.first()?;
        let bounds = self.read.iter().flat_map(|read| &read.open).filter_map(|(_, least)| *least);
        bounds.filter(|least| first.saturating_sub(*least) <= NEAR).chain([first]).min()
    }

    /// The transactions whose end moves the beginning of a fetch below this id.
    pub fn may_lower(&self, first: RecordId) -> Vec<i64> {
        let open = self.read.iter().flat_map(|read| &read.open);
        open.filter(|(_, least)| *least < Some(first)).map(|(number, _)| *number).collect()
    }

    /// The highest id at which a fetch with this snapshot may begin. `None` if it is unknown.
    pub fn first_under(&self, snapshot: &Snapshot) -> Option<RecordId> {
        let read = self.read.as_ref()?;
        if snapshot.end < read.end {
            // Numbers have gone back: they have another history than the known one.
            return None;
        }
        let ended = read.open.iter().filter(|(number, _)| snapshot.sees(*number));
        ended.map(|(_, least)| *least).fold(self.first(), Option::min)
    }

    /// Takes the extent of a fetch with this snapshot, which has read all pending records up to `to`. The
    /// fetch began at [`Witnesses::first_under`] or below, or at the first pending record.
    pub fn read(&mut self, snapshot: &Snapshot, to: RecordId) {
        let before = self.read.take();
        let known = |number: i64| {
            let open = before.as_ref().map(|read| &read.open)?;
            let place = open.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            open[place].1
        };
        let open = snapshot.open.iter().map(|number| (*number, self.least_id(*number).max(known(*number))));
        let open: Vec<(i64, Option<RecordId>)> = open.collect();
        // Below the bounds nothing is read again. What is above `to` was seen earlier, and is not read again now.
        let least = open.iter().filter_map(|(_, least)| *least).min();
        let above = to.saturating_add(1);
        self.seen.remove_below(least.map_or(above, |least| least.min(above)));
        self.read = Some(Read { end: snapshot.end, open, to });
        // Transactions that are open in later snapshots are open in this one, with their bounds beside them,
        // or have numbers from its end on.
        let needed = self.ladder.iter().rposition(|witness| witness.number <= snapshot.end);
        self.ladder.drain(..needed.unwrap_or(0));
    }

    /// These transactions had no record id when `last_id` was read. Those that were open in the
    /// last snapshot draw only ids above `last_id`.
    pub fn stand_by(&mut self, numbers: &[i64], last_id: RecordId) {
        for (number, least) in self.read.iter_mut().flat_map(|read| &mut read.open) {
            if numbers.contains(number) {
                *least = (*least).max(Some(last_id.saturating_add(1)));
            }
        }
    }

    /// Whether the next scan lists the ids that it sees: an open transaction may have drawn an id far below.
    pub fn lists(&self) -> bool {
        let is_far =
            |read: &Read| read.open.iter().any(|(_, least)| least.is_some_and(|id| read.to - id > FAR));
        self.read.as_ref().is_some_and(is_far)
    }

    /// Adds ids that the snapshot of the last fetch sees, in ascending order. The fetch has read up to all of
    /// them.
    pub fn see(&mut self, ids: &[RecordId]) {
        self.seen.add(ids);
    }

    /// The highest id that was read or seen.
    pub fn top(&self) -> Option<RecordId> {
        self.read.as_ref().map(|read| self.seen.last().map_or(read.to, |last| last.max(read.to)))
    }

    /// The ids that a fetch from this id on has to read up to [`Witnesses::top`]: all except those that were
    /// seen. `None` if it costs less to walk over all.
    pub fn others(&self, from: RecordId) -> Option<Vec<(RecordId, RecordId)>> {
        let top =
            self.top().filter(|top| top.saturating_sub(from) > NEAR && self.seen.last() > Some(from))?;
        Some(self.seen.others(from, top))
    }

    /// Lowers the extent of the last fetch to the ids below this one.
    pub fn lower(&mut self, id: RecordId) {
        if let Some(read) = &mut self.read {
            read.to = read.to.min(id.saturating_sub(1));
        }
        self.seen.remove_from(id);
    }

    /// Drops the extent of the last fetch.
    pub fn reset(&mut self) {
        (self.read, self.seen) = (None, IdRanges::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(end: i64, open: &[i64]) -> Snapshot {
        Snapshot { end, open: open.to_vec() }
    }

    /// Ids up to 100 were drawn before number 10, up to 200 before 20, and up to 300 before 30.
    fn witnesses() -> Witnesses {
        let mut witnesses = Witnesses::default();
        for number in [10, 20, 30] {
            witnesses.add(Witness { last_id: number * 10, number });
        }
        witnesses
    }

    #[test]
    fn an_open_transaction_holds_nothing_back_and_lowers_the_beginning_when_it_ends() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[15, 25]), 500);
        assert_eq!(witnesses.first(), Some(301), "those from 40 on may have drawn ids above 300 already");
        witnesses.add(Witness { last_id: 600, number: 38 });
        assert_eq!(witnesses.first(), Some(501));
        assert_eq!(witnesses.first_under(&snapshot(50, &[15, 25])), Some(501));
        assert_eq!(witnesses.first_under(&snapshot(50, &[15])), Some(201));
        assert_eq!(witnesses.first_under(&snapshot(50, &[])), Some(101));
        assert_eq!(witnesses.may_lower(501), [15, 25]);
        assert_eq!(witnesses.may_lower(201), [15]);
    }

    #[test]
    fn a_fetch_begins_before_what_near_transactions_may_have_drawn() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[15, 25]), 320);
        witnesses.add(Witness { last_id: 340, number: 38 });
        assert_eq!(
            (witnesses.first(), witnesses.beginning()),
            (Some(321), Some(201)),
            "120 ids away is near"
        );
        witnesses.read(&snapshot(40, &[15, 25]), 500);
        assert_eq!((witnesses.first(), witnesses.beginning()), (Some(341), Some(341)), "140 ids away is not");
        witnesses.read(&snapshot(41, &[39]), 350);
        assert_eq!(witnesses.beginning(), Some(341), "the open transaction draws no id below");
    }

    #[test]
    fn a_witness_that_shows_nothing_new_is_not_kept() {
        let mut witnesses = witnesses();
        for (last_id, number) in [(300, 31), (301, 30), (301, 29), (299, 31)] {
            witnesses.add(Witness { last_id, number });
            assert_eq!(witnesses.newest(), Some(Witness { last_id: 300, number: 30 }), "{last_id}, {number}");
        }
    }

    #[test]
    fn a_witness_above_a_snapshot_takes_none_away_that_is_still_wanted() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(25, &[]), 150);
        witnesses.read(&snapshot(41, &[26]), 350);
        assert_eq!(witnesses.may_lower(202), [26]);
        assert!(witnesses.may_lower(201).is_empty());
    }

    #[test]
    fn a_bystander_draws_no_id_up_to_the_last_one() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[5, 15]), 250);
        witnesses.stand_by(&[5, 39], 240);
        assert_eq!(witnesses.may_lower(250), [5, 15]);
        assert_eq!(witnesses.may_lower(241), [15]);
        assert_eq!(witnesses.first_under(&snapshot(41, &[15])), Some(241));
        witnesses.stand_by(&[5], 200);
        assert_eq!(
            witnesses.first_under(&snapshot(41, &[15])),
            Some(241),
            "an earlier answer takes nothing back"
        );
    }

    #[test]
    fn the_bound_of_an_open_transaction_outlives_its_witness() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[15]), 500);
        for number in 41..100 {
            witnesses.add(Witness { last_id: number * 100, number });
            witnesses.read(&snapshot(number + 1, &[15]), number * 100);
        }
        assert!(witnesses.ladder.len() <= MOST_WITNESSES);
        assert_eq!(witnesses.first(), Some(9_901));
        assert_eq!(witnesses.first_under(&snapshot(101, &[])), Some(101));
    }

    #[test]
    fn what_is_older_than_all_witnesses_may_draw_any_id() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[5]), 250);
        assert_eq!(witnesses.first_under(&snapshot(40, &[5])), Some(251));
        assert_eq!(witnesses.first_under(&snapshot(41, &[])), None);
        assert_eq!(Witnesses::default().first(), None);
        let mut none = Witnesses::default();
        none.read(&snapshot(40, &[]), 250);
        assert_eq!(none.first(), None, "nothing bounds those from 40 on");
    }

    #[test]
    fn a_witness_above_the_end_of_a_snapshot_says_nothing_of_those_below_it() {
        let mut witnesses = Witnesses::default();
        witnesses.add(Witness { last_id: 100, number: 10 });
        witnesses.read(&snapshot(12, &[]), 500);
        witnesses.add(Witness { last_id: 400, number: 14 });
        assert_eq!(witnesses.first(), Some(101), "12 and 13 were given out before");
    }

    #[test]
    fn the_first_and_the_newest_of_many_witnesses_are_kept() {
        let mut witnesses = witnesses();
        (31..99).for_each(|number| witnesses.add(Witness { last_id: number * 10, number }));
        assert_eq!(witnesses.ladder.len(), MOST_WITNESSES);
        assert_eq!(witnesses.least_id(10), Some(101));
        assert_eq!(witnesses.newest(), Some(Witness { last_id: 980, number: 98 }));
    }

    #[test]
    fn a_lowered_reading_is_read_again() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[]), 280);
        witnesses.lower(270);
        assert_eq!(witnesses.first(), Some(270));
        witnesses.lower(900);
        assert_eq!(witnesses.first(), Some(270));
        witnesses.reset();
        assert_eq!(witnesses.first(), None);
    }

    #[test]
    fn a_far_walk_back_leaves_out_what_was_seen() {
        let mut witnesses = witnesses();
        witnesses.read(&snapshot(40, &[15]), 101 + FAR);
        assert!(!witnesses.lists(), "to walk over so many costs less");
        witnesses.read(&snapshot(40, &[15]), 20_000);
        assert!(witnesses.lists());
        assert_eq!((witnesses.others(101), witnesses.top()), (None, Some(20_000)), "nothing was seen");
        witnesses.see(&[9_000, 9_001, 9_003, 19_000]);
        let others = witnesses.others(201).unwrap();
        assert_eq!(others, [(201, 8_999), (9_002, 9_002), (9_004, 18_999), (19_001, 20_000)]);
        assert_eq!(witnesses.others(20_000 - NEAR), None, "to walk over so many costs less");
        assert_eq!(witnesses.others(15_000).unwrap(), [(15_000, 18_999), (19_001, 20_000)]);
        // A scan that was cut: what was seen above is not read again.
        witnesses.read(&snapshot(41, &[]), 9_100);
        assert_eq!(witnesses.top(), Some(19_000));
        assert_eq!(witnesses.others(9_101).unwrap(), [(9_101, 18_999)]);
        // Records above an id may be pending again.
        witnesses.lower(9_050);
        assert_eq!((witnesses.top(), witnesses.others(201)), (Some(9_049), None));
        witnesses.reset();
        assert_eq!((witnesses.top(), witnesses.others(201)), (None, None));
    }

    #[test]
    fn a_snapshot_sees_what_had_ended() {
        let snapshot = snapshot(10, &[4, 7]);
        let seen: Vec<i64> = (1..12).filter(|number| snapshot.sees(*number)).collect();
        assert_eq!(seen, [1, 2, 3, 5, 6, 8, 9]);
        assert_eq!((snapshot.open_from(), Snapshot { end: 3, open: vec![] }.open_from()), (4, 3));
    }
}
