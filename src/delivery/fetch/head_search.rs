//! The partitions in which a poll searches for the head, to find records that others have made pending below
//! the watermark.

use std::time::Duration;

use crate::{
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::pacing,
};

/// A search for a head reads the index entries of all finished records of the partition that the database
/// cannot remove yet, because a transaction is open. So one poll searches only as many partitions as take
/// little time.
pub(super) struct HeadSearch {
    /// The number of partitions per search. Written by `took`.
    partitions: usize,
    /// The first partition of the next search. Moved on by each poll.
    turn: usize,
}

/// Where a poll searches for the head.
pub(super) enum SearchIn {
    /// In all partitions: the search is cheap.
    All,
    /// In these partitions: the search is expensive.
    Some(PartitionSet),
}

impl Default for HeadSearch {
    fn default() -> Self {
        Self { partitions: PARTITION_COUNT, turn: 0 }
    }
}

impl HeadSearch {
    /// A search of this many partitions has taken this time.
    pub(super) fn took(&mut self, partitions: usize, took: Duration) {
        self.partitions = pacing::partitions_a_search(partitions, took);
    }

    /// The partitions of the next search. Called once per poll.
    pub(super) fn next(&mut self) -> SearchIn {
        if self.partitions >= PARTITION_COUNT {
            return SearchIn::All;
        }
        let all: Vec<Partition> = Partition::all().collect();
        let some = all.into_iter().cycle().skip(self.turn).take(self.partitions).collect();
        self.turn = (self.turn + self.partitions) % PARTITION_COUNT;
        SearchIn::Some(some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_that_take_long_are_spread_over_polls() {
        let mut search = HeadSearch::default();
        assert!(matches!(search.next(), SearchIn::All));
        search.took(PARTITION_COUNT, Duration::from_secs(1));
        let mut asked = PartitionSet::EMPTY;
        let mut polls = 0;
        while asked != PartitionSet::ALL {
            let SearchIn::Some(some) = search.next() else { panic!("all at once") };
            assert!(some.len() < 16, "{}", some.len());
            asked = asked.union(some);
            polls += 1;
        }
        assert!(polls < PARTITION_COUNT, "{polls}");
        search.took(4, Duration::from_micros(8));
        assert!(matches!(search.next(), SearchIn::All), "what has ended is removed by now");
    }
}
