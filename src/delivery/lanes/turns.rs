//! Whose turn it is among the records that run alone: one at a time, the oldest first.

use std::collections::BTreeMap;

use crate::{delivery::work::LaneId, record::RecordId};

/// The records in memory that run alone.
#[derive(Default)]
pub(super) struct Turns {
    /// From the admission of a record until it is not in memory any more.
    waiting: BTreeMap<RecordId, LaneId>,
    /// The record whose turn it is. Set by `pass_on`, until it is not in memory any more.
    turn: Option<RecordId>,
}

impl Turns {
    pub(super) fn add(&mut self, record: RecordId, lane: LaneId) {
        self.waiting.insert(record, lane);
    }

    /// The record is not in memory any more.
    pub(super) fn remove(&mut self, record: RecordId) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&record);
        }
        if self.turn == Some(record) {
            self.turn = None;
        }
    }

    /// Whether it is the turn of this record.
    pub(super) fn is_of(&self, record: RecordId) -> bool {
        self.turn == Some(record)
    }

    /// If it is nobody's turn, it is that of the oldest that stands at the `head` of its lane. Returns its
    /// lane.
    pub(super) fn pass_on(&mut self, head: impl Fn(LaneId) -> Option<RecordId>) -> Option<LaneId> {
        if self.turn.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (record, lane) = self.waiting.iter().find(|(record, lane)| head(**lane) == Some(**record))?;
        self.turn = Some(*record);
        Some(*lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LaneId = LaneId(1);
    const B: LaneId = LaneId(2);

    #[test]
    fn one_has_its_turn_until_it_has_gone() {
        let mut turns = Turns::default();
        turns.add(2, B);
        turns.add(1, A);
        turns.add(3, B);
        let head = |of| Some(if of == A { 9 } else { 2 });
        assert_eq!(turns.pass_on(head), Some(B), "the first is not at the head of its lane");
        assert!(turns.is_of(2));
        assert_eq!(turns.pass_on(head), None);
        turns.remove(2);
        assert_eq!(turns.pass_on(|of| Some(if of == A { 1 } else { 3 })), Some(A));
    }
}
