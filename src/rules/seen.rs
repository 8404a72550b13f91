//! The ids whose rows a scan has seen, so that a walk back leaves them out.
//!
//! The end of a transaction that was open for long leads the next fetch back to the least id that the
//! transaction may have drawn. All that was settled meanwhile lies behind that id. But what a snapshot has seen
//! was committed before the snapshot, and no transaction that ends later adds it. So only the other ids are
//! looked at again: those of open transactions, and of transactions that were rolled back.

use crate::record::RecordId;

/// The most ranges that are kept.
const MOST_RANGES: usize = 4_096;

/// Ids of which a snapshot has seen the rows. The more are forgotten, the more is read again, and nothing is
/// lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// First and last id of each range, in ascending order. Between two ranges lies at least one id.
    ranges: Vec<(RecordId, RecordId)>,
}

impl Seen {
    /// Adds ids, which are in ascending order. If there are too many ranges, the lowest are forgotten.
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

    /// Forgets the ids from this one on.
    pub fn forget_from(&mut self, id: RecordId) {
        let kept = self.ranges.partition_point(|(first, _)| *first < id);
        self.ranges.truncate(kept);
        if let Some((_, last)) = self.ranges.last_mut() {
            *last = (*last).min(id.saturating_sub(1));
        }
    }

    /// Forgets ranges that end below this id.
    pub fn forget_below(&mut self, id: RecordId) {
        let gone = self.ranges.partition_point(|(_, last)| *last < id);
        self.ranges.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn seen(ids: &[RecordId]) -> Seen {
        let mut seen = Seen::default();
        seen.add(ids);
        seen
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(seen(&[1, 2, 3, 7, 9, 10]).ranges, [(1, 3), (7, 7), (9, 10)]);
        let mut joined = seen(&[1, 3, 5, 20]);
        joined.add(&[2, 4, 21]);
        assert_eq!(joined.ranges, [(1, 5), (20, 21)]);
        assert_eq!((joined.last(), Seen::default().last()), (Some(21), None));
    }

    #[test]
    fn the_others_lie_between_and_around() {
        let seen = seen(&[3, 4, 8]);
        assert_eq!(seen.others(1, 10), [(1, 2), (5, 7), (9, 10)]);
        assert_eq!(seen.others(3, 8), [(5, 7)]);
        assert_eq!(seen.others(6, 6), [(6, 6)]);
        assert_eq!(seen.others(8, 8), []);
        assert_eq!(seen.others(9, 8), []);
        assert_eq!(Seen::default().others(2, 5), [(2, 5)]);
    }

    #[test]
    fn the_lowest_of_too_many_ranges_are_forgotten() {
        let ids: Vec<RecordId> = (0..MOST_RANGES as i64 + 2).map(|n| n * 2).collect();
        let seen = seen(&ids);
        assert_eq!((seen.ranges.len(), seen.ranges[0]), (MOST_RANGES, (4, 4)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Beside a set of ids, which is told the same.
        #[test]
        fn it_is_a_set_of_ids(
            steps in prop::collection::vec(
                (0_i64..60, prop::collection::btree_set(0_i64..60, 0..20), 0..4_u8), 1..20,
            ),
            (from, to) in (0_i64..60, 0_i64..60),
        ) {
            let (mut seen, mut ids) = (Seen::default(), BTreeSet::new());
            for (at, added, step) in steps {
                match step {
                    0 => {
                        seen.forget_from(at);
                        ids.retain(|id| *id < at);
                    }
                    1 => {
                        // A range that goes on at the id is kept whole.
                        let mut first = at;
                        while ids.contains(&at) && ids.contains(&(first - 1)) {
                            first -= 1;
                        }
                        seen.forget_below(at);
                        ids.retain(|id| *id >= first);
                    }
                    _ => {
                        seen.add(&added.iter().copied().collect::<Vec<_>>());
                        ids.extend(added);
                    }
                }
            }
            prop_assert_eq!(seen.last(), ids.last().copied());
            let others = seen.others(from, to);
            let listed: Vec<RecordId> = others.iter().flat_map(|(first, last)| *first..=*last).collect();
            let wanted: Vec<RecordId> = (from..=to).filter(|id| !ids.contains(id)).collect();
            prop_assert_eq!(listed, wanted);
            prop_assert!(others.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0 ), "{:?}", others);
        }
    }
}
