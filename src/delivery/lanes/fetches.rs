//! What a fetch under way may not be believed.

use std::collections::HashSet;

use crate::record::Lane;

/// The fetches so far, and the lanes whose rows in the one under way are stale: the lane's memory has changed
/// since the fetch began.
#[derive(Default)]
pub(super) struct Fetches {
    /// The number of the last fetch that has begun.
    seq: u64,
    /// From `begin` to `end`.
    under_way: bool,
    /// Written by `mark` during a fetch, emptied by `begin` and `end`.
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

    /// The rows of this lane in a fetch under way no longer count.
    pub(super) fn mark_stale(&mut self, lane: &Lane) {
        if self.under_way {
            self.stale.insert(lane.clone());
        }
    }

    /// Whether no lane is stale, which is usually so.
    pub(super) fn all_fresh(&self) -> bool {
        self.stale.is_empty()
    }

    pub(super) fn is_stale(&self, lane: &Lane) -> bool {
        self.stale.contains(lane)
    }
}
