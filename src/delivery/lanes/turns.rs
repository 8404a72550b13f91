//! The turns of the records that run alone: one at a time, the oldest first.

use std::collections::BTreeMap;

use crate::{delivery::work::LaneId, record::RecordId};

/// The records in memory that run alone.
#[derive(Default)]
pub(super) struct Turns {
    /// The records with their lanes. Added when a record is admitted, removed when it leaves memory.
    waiting: BTreeMap<RecordId, LaneId>,
    /// The record that has its turn. Set by `pass_on`, cleared when the record leaves memory.
    turn: Option<RecordId>,
}

impl Turns {
    pub(super) fn add(&mut self, record: RecordId, lane: LaneId) {
        self.waiting.insert(record, lane);
    }

    /// The record has left memory.
    pub(super) fn remove(&mut self, record: RecordId) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&record);
        }
        if self.turn == Some(record) {
            self.turn = None;
        }
    }

    /// Whether this record has its turn.
    pub(super) fn is_of(&self, record: RecordId) -> bool {
        self.turn == Some(record)
    }

    /// If no record has its turn, the oldest record that stands at the head of its lane gets it. `head`: the
    /// first queued record of a lane. Returns the lane of the record.
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
        assert_eq!(turns.waiting.len(), 2);
        assert_eq!(turns.pass_on(|of| Some(if of == A { 1 } else { 3 })), Some(A));
    }
}
