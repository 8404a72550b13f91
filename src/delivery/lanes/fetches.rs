//! The lanes whose rows in the fetch under way do not count.

use std::collections::HashSet;

use crate::record::Lane;

/// The number of the fetches so far, and the lanes whose rows in the fetch under way are stale: the lane has
/// changed since the fetch began.
#[derive(Default)]
pub(super) struct Fetches {
    /// The number of the last fetch. Raised by `begin`.
    seq: u64,
    /// Whether a fetch is under way. Set by `begin`, cleared by `end`.
    under_way: bool,
    /// Added by `mark_stale` during a fetch, cleared by `begin` and `end`.
    stale: HashSet<Lane>,
}

impl Fetches {
    pub(super) fn begin(&mut self) -> u64 {
        self.end();
        self.under_way = true;
        self.seq += 1;
        self.seq
    }

    pub(super) fn end(&mut self) {
        self.under_way = false;
        self.stale.clear();
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// The rows of this lane in the fetch under way no longer count.
    pub(super) fn mark_stale(&mut self, lane: &Lane) {
        if self.under_way {
            self.stale.insert(lane.clone());
        }
    }

    /// Whether no lane is stale, which is the usual case.
    pub(super) fn all_fresh(&self) -> bool {
        self.stale.is_empty()
    }

    pub(super) fn is_stale(&self, lane: &Lane) -> bool {
        self.stale.contains(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::fixtures;

    #[test]
    fn only_what_changes_during_a_fetch_is_stale_for_it() {
        let [a, b] = ["a", "b"].map(|key| fixtures::record(1, key).lane());
        let mut fetches = Fetches::default();
        fetches.mark_stale(&a);
        assert!(fetches.all_fresh(), "no fetch is under way");
        let first = fetches.begin();
        fetches.mark_stale(&a);
        assert!(!fetches.all_fresh() && fetches.is_stale(&a) && !fetches.is_stale(&b));
        assert_eq!((fetches.begin(), fetches.seq()), (first + 1, first + 1));
        assert!(!fetches.is_stale(&a), "another fetch");
        fetches.mark_stale(&b);
        fetches.end();
        fetches.mark_stale(&a);
        assert!(fetches.all_fresh(), "it is over");
    }
}
