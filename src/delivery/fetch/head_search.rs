//! Where the head of a partition is asked for from time to time, so that what another hand has made pending is
//! found.

use std::time::Duration;

use crate::{
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::pacing,
};

/// Asking where a head is walks over the entries of all that was done in the partition and cannot be removed
/// yet, because a transaction of the server is open. So it is asked of as many partitions at once as take little time.
pub(super) struct HeadSearch {
    /// In so many at once. Changed by `took`.
    partitions: usize,
    /// The first partition of the next one. Moved on by each poll.
    turn: usize,
}

/// Where a poll has the head searched for.
pub(super) enum SearchIn {
    /// All partitions: it costs little.
    All,
    /// These, because it costs much.
    Some(PartitionSet),
}

impl Default for HeadSearch {
    fn default() -> Self {
        Self { partitions: PARTITION_COUNT, turn: 0 }
    }
}

impl HeadSearch {
    /// To find the head of so many partitions has taken this long.
    pub(super) fn took(&mut self, partitions: usize, took: Duration) {
        self.partitions = pacing::partitions_a_search(partitions, took);
    }

    /// A poll asks for what comes next.
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
