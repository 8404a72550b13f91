//! Lanes with queued records and no run, in the order in which they became so.

use std::collections::VecDeque;

use crate::record::Lane;

/// Lanes of transactional handlers wait apart: each of their runs needs a guard, and nobody else is to
/// wait for one.
#[derive(Default)]
pub(super) struct Ready {
    plain: VecDeque<Lane>,
    transactional: VecDeque<Lane>,
}

impl Ready {
    /// A lane has become ready.
    pub(super) fn push(&mut self, transactional: bool, lane: Lane) {
        self.of(transactional).push_back(lane);
    }

    /// The lane of a kind that has waited longest.
    pub(super) fn pop(&mut self, transactional: bool) -> Option<Lane> {
        self.of(transactional).pop_front()
    }

    /// The lane of a handler that has waited longest.
    pub(super) fn pop_of(&mut self, transactional: bool, handler: &str) -> Option<Lane> {
        let lanes = self.of(transactional);
        let place = lanes.iter().position(|lane| lane.handler == handler)?;
        lanes.remove(place)
    }

    fn of(&mut self, transactional: bool) -> &mut VecDeque<Lane> {
        if transactional { &mut self.transactional } else { &mut self.plain }
    }
}
