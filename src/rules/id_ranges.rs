//! A set of ids, as ranges: the ids whose rows a scan has seen. A later fetch leaves them out.
//!
//! When a long transaction ends, the next fetch begins at the lowest id that the transaction may have drawn. All
//! records that were settled meanwhile lie behind that id. A row that a snapshot has seen was committed before the
//! snapshot, so no transaction that ends later adds it. Therefore only the other ids are read again: the ids of
//! open transactions, and of transactions that were rolled back.

use crate::record::RecordId;

/// The most ranges that are kept.
const MOST_RANGES: usize = 4_096;

/// Ids whose rows a snapshot has seen. An id that is dropped from the set is read again, so nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges {
    /// First and last id of each range, in ascending order. Between two ranges lies at least one id.
    ranges: Vec<(RecordId, RecordId)>,
}

impl IdRanges {
    /// Adds ids, which are in ascending order. If there are too many ranges, the lowest are dropped.
    pub fn add(&mut self, ids: &[RecordId]) {
        let Some(first) = ids.first() else { return };
        // Nearly always, all ids are behind the known ones.
        let behind = self.ranges.partition_point(|(_, last)| last < first);
        let later = self.ranges.split_off(behind);
        let mut later = later.into_iter().peekable();
        let mut ids = ids.iter().map(|id| (*id, *id)).peekable();
        loop {
            let next = match (ids.peek(), later.peek()) {
                (Some(id), Some(range)) if id <= range => ids.next(),
                (_, Some(_)) => later.next(),
                (_, None) => ids.next(),
            };
            let Some(next) = next else { break };
            match self.ranges.last_mut() {
                Some((_, last)) if next.0 <= last.saturating_add(1) => *last = next.1.max(*last),
                _ => self.ranges.push(next),
            }
        }
        let too_many = self.ranges.len().saturating_sub(MOST_RANGES);
        self.ranges.drain(..too_many);
    }

    /// The highest id.
    pub fn last(&self) -> Option<RecordId> {
        self.ranges.last().map(|(_, last)| *last)
    }

    /// The ranges of the other ids from `from` to `to`, in ascending order: first and last id of each.
    pub fn others(&self, from: RecordId, to: RecordId) -> Vec<(RecordId, RecordId)> {
        let (mut others, mut from) = (Vec::new(), from);
        let behind = self.ranges.partition_point(|(_, last)| *last < from);
        for (first, last) in self.ranges[behind..].iter().take_while(|(first, _)| *first <= to) {
            if from < *first {
                others.push((from, *first - 1));
            }
            from = last.saturating_add(1);
        }
        if from <= to {
            others.push((from, to));
        }
        others
    }

    /// Removes the ids from this one on.
    pub fn remove_from(&mut self, id: RecordId) {
        let kept = self.ranges.partition_point(|(first, _)| *first < id);
        self.ranges.truncate(kept);
        if let Some((_, last)) = self.ranges.last_mut() {
            *last = (*last).min(id.saturating_sub(1));
        }
    }

    /// Removes the ranges that end below this id.
    pub fn remove_below(&mut self, id: RecordId) {
        let gone = self.ranges.partition_point(|(_, last)| *last < id);
        self.ranges.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(ids: &[RecordId]) -> IdRanges {
        let mut all = IdRanges::default();
        all.add(ids);
        all
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(of(&[1, 2, 3, 7, 9, 10]).ranges, [(1, 3), (7, 7), (9, 10)]);
        let mut joined = of(&[1, 3, 5, 20]);
        joined.add(&[2, 4, 21]);
        assert_eq!(joined.ranges, [(1, 5), (20, 21)]);
        assert_eq!((joined.last(), IdRanges::default().last()), (Some(21), None));
    }

    #[test]
    fn the_others_lie_between_and_around() {
        let all = of(&[3, 4, 8]);
        assert_eq!(all.others(1, 10), [(1, 2), (5, 7), (9, 10)]);
        assert_eq!(all.others(3, 8), [(5, 7)]);
        assert_eq!(all.others(6, 6), [(6, 6)]);
        assert_eq!(all.others(8, 8), []);
        assert_eq!(all.others(9, 8), []);
        assert_eq!(IdRanges::default().others(2, 5), [(2, 5)]);
    }

    #[test]
    fn the_lowest_of_too_many_ranges_are_dropped() {
        let ids: Vec<RecordId> = (0..MOST_RANGES as i64 + 2).map(|n| n * 2).collect();
        let all = of(&ids);
        assert_eq!((all.ranges.len(), all.ranges[0]), (MOST_RANGES, (4, 4)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Compared with a plain set of ids.
        #[test]
        fn it_is_a_set_of_ids(
            steps in prop::collection::vec(
                (0_i64..60, prop::collection::btree_set(0_i64..60, 0..20), 0..4_u8), 1..20,
            ),
            (from, to) in (0_i64..60, 0_i64..60),
        ) {
            let (mut all, mut ids) = (IdRanges::default(), BTreeSet::new());
            for (at, added, step) in steps {
                match step {
                    0 => {
                        all.remove_from(at);
                        ids.retain(|id| *id < at);
                    }
                    1 => {
                        // A range that goes on at the id is kept whole.
                        let mut first = at;
                        while ids.contains(&at) && ids.contains(&(first - 1)) {
                            first -= 1;
                        }
                        all.remove_below(at);
                        ids.retain(|id| *id >= first);
                    }
                    _ => {
                        all.add(&added.iter().copied().collect::<Vec<_>>());
                        ids.extend(added);
                    }
                }
            }
            prop_assert_eq!(all.last(), ids.last().copied());
            let others = all.others(from, to);
            let listed: Vec<RecordId> = others.iter().flat_map(|(first, last)| *first..=*last).collect();
            let wanted: Vec<RecordId> = (from..=to).filter(|id| !ids.contains(id)).collect();
            prop_assert_eq!(listed, wanted);
            prop_assert!(others.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0 ), "{:?}", others);
        }
    }
}
