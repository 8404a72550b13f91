//! Where a poll searches for the head, to find records that others have made pending below the watermark.

use std::time::Duration;

use crate::{
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::pacing,
};

/// While records are in memory and the search is cheap, one in this many polls searches.
const POLLS_PER_SEARCH: u32 = 5;

/// The number of records fetched since the last search after which its time does not predict that of the next one:
/// to walk over so many finished records takes some 10 ms.
const RECORDS_PER_SEARCH: usize = 4_096;

/// A search for a head reads the index entries of all finished records of the partition that the database
/// cannot remove yet, because a transaction is open. So one poll searches only as many partitions as it can in
/// little time. A search of a few partitions shows how many these are.
pub(super) struct HeadSearch {
    /// The number of partitions per search. Written by `took`.
    partitions: usize,
    /// The first partition of the next search. Moved on by each search of a part.
    turn: usize,
    /// The number of records fetched since the last search. Counted by `fetched`, cleared by `took`.
    fetched: usize,
    /// Whether a search of a few partitions is under way, which shows in how many the poll searches next.
    /// Set by `next`, cleared by `took`.
    probes: bool,
}

impl Default for HeadSearch {
    fn default() -> Self {
        Self { partitions: PARTITION_COUNT, turn: 0, fetched: 0, probes: false }
    }
}

impl HeadSearch {
    /// This many records were fetched.
    pub(super) fn fetched(&mut self, records: usize) {
        self.fetched = self.fetched.saturating_add(records);
    }

    /// A search of this many partitions has taken this time. Returns the partitions in which the poll goes on to
    /// search, if it does.
    pub(super) fn took(&mut self, partitions: usize, took: Duration) -> Option<PartitionSet> {
        // A released lane has its partition searched by itself, which says little of the others.
        if partitions < pacing::LEAST_SEARCH && !self.probes {
            return None;
        }
        self.partitions = pacing::partitions_per_search(partitions, took);
        self.fetched = 0;
        let left = self.partitions.saturating_sub(partitions);
        (std::mem::take(&mut self.probes) && left > 0).then(|| self.turn_of(left))
    }

    /// The partitions in which the next poll searches, if it does. Called once per poll, with the number of
    /// polls so far and whether records are in memory.
    pub(super) fn next(&mut self, polls: u32, in_memory: bool) -> Option<PartitionSet> {
        let cheap = self.partitions >= PARTITION_COUNT;
        if cheap && in_memory && !polls.is_multiple_of(POLLS_PER_SEARCH) {
            return None;
        }
        self.probes = self.fetched >= RECORDS_PER_SEARCH;
        Some(self.turn_of(if self.probes { pacing::LEAST_SEARCH } else { self.partitions }))
    }

    fn turn_of(&mut self, partitions: usize) -> PartitionSet {
        let all: Vec<Partition> = Partition::all().collect();
        let first = self.turn;
        self.turn = (first + partitions) % PARTITION_COUNT;
        all.into_iter().cycle().skip(first).take(partitions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_that_take_long_are_spread_over_polls() {
        let mut search = HeadSearch::default();
        assert_eq!(search.next(1, false), Some(PartitionSet::ALL));
        assert_eq!(search.took(PARTITION_COUNT, Duration::from_secs(1)), None);
        let mut asked = PartitionSet::EMPTY;
        let mut polls = 0;
        while asked != PartitionSet::ALL {
            let some = search.next(polls, true).unwrap();
            assert!(some.len() < 16, "{}", some.len());
            asked = asked.union(some);
            polls += 1;
        }
        assert!(polls < PARTITION_COUNT as u32, "{polls}");
        search.took(4, Duration::from_micros(8));
        assert_eq!(search.next(polls, false), Some(PartitionSet::ALL), "what has ended is removed by now");
    }

    #[test]
    fn a_search_is_seldom_while_it_is_cheap_and_there_is_work() {
        let mut search = HeadSearch::default();
        let searched: Vec<u32> = (1..=10).filter(|polls| search.next(*polls, true).is_some()).collect();
        assert_eq!(searched, [5, 10]);
    }

    /// The search before was over at once, and a million rows have died since.
    #[test]
    fn a_few_partitions_are_searched_first_if_much_was_done_since() {
        let mut search = HeadSearch::default();
        search.took(PARTITION_COUNT, Duration::from_millis(1));
        search.fetched(1_000_000);
        let few = search.next(5, true).unwrap();
        assert_eq!(few.len(), pacing::LEAST_SEARCH);
        // The poll goes on where the first search has ended, for the rest of its 50 ms.
        let more = search.took(few.len(), Duration::from_millis(20)).unwrap();
        assert_eq!((more.len(), more.union(few).len()), (6, 10));
        assert_eq!(search.took(more.len(), Duration::from_millis(30)), None, "one poll, two searches");
    }

    #[test]
    fn the_search_of_a_released_lane_is_no_sample() {
        let mut search = HeadSearch::default();
        search.fetched(1_000_000);
        assert_eq!(search.took(1, Duration::from_micros(10)), None);
        let few = search.next(5, true).unwrap();
        assert_eq!(few.len(), pacing::LEAST_SEARCH);
        // This instance owns only one of the four.
        let more = search.took(1, Duration::from_millis(50)).unwrap();
        assert_eq!(more.len() + 1, pacing::LEAST_SEARCH, "the poll has no time for others");
    }

    #[test]
    fn a_poll_searches_everywhere_if_a_few_partitions_are_cheap() {
        let mut search = HeadSearch::default();
        search.fetched(1_000_000);
        let few = search.next(1, false).unwrap();
        let rest = search.took(few.len(), Duration::from_micros(300)).unwrap();
        assert_eq!((few.len(), rest.union(few)), (pacing::LEAST_SEARCH, PartitionSet::ALL));
        assert_eq!(search.next(2, false), Some(PartitionSet::ALL), "nothing was done since");
    }
}
