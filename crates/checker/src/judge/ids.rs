//! A set of ids that become dense, kept as ranges.

use std::collections::BTreeMap;

/// The first and the last id of each range.
#[derive(Debug, Default)]
pub(super) struct Ids(BTreeMap<i64, i64>);

impl Ids {
    pub(super) fn contains(&self, id: i64) -> bool {
        self.0.range(..=id).next_back().is_some_and(|(_, last)| *last >= id)
    }

    pub(super) fn insert(&mut self, id: i64) {
        if self.contains(id) {
            return;
        }
        let before = self.0.range(..id).next_back().map(|(first, last)| (*first, *last));
        let first = before.filter(|(_, last)| last.saturating_add(1) == id).map_or(id, |(first, _)| first);
        let last = id.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(id);
        self.0.insert(first, last);
    }

    pub(super) fn remove(&mut self, id: i64) {
        let Some((first, last)) = self.0.range(..=id).next_back().map(|(first, last)| (*first, *last)) else {
            return;
        };
        if last < id {
            return;
        }
        self.0.remove(&first);
        if first < id {
            self.0.insert(first, id - 1);
        }
        if id < last {
            self.0.insert(id + 1, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), 0_i64..20), 0..60)) {
            let (mut ids, mut set) = (Ids::default(), BTreeSet::new());
            for (insert, id) in steps {
                if insert {
                    ids.insert(id);
                    set.insert(id);
                } else {
                    ids.remove(id);
                    set.remove(&id);
                }
                let found: BTreeSet<i64> = (-1..21).filter(|id| ids.contains(*id)).collect();
                prop_assert_eq!(&found, &set);
            }
        }
    }
}
