//! Whose turn it is among the records that run alone: one at a time, the oldest first.

use std::collections::BTreeMap;

use crate::record::{Lane, RecordId};

/// The records in memory that run alone.
#[derive(Default)]
pub(super) struct Turns {
    waiting: BTreeMap<RecordId, Lane>,
    turn: Option<RecordId>,
}

impl Turns {
    pub(super) fn add(&mut self, record: RecordId, lane: Lane) {
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
    pub(super) fn pass_on(&mut self, head: impl Fn(&Lane) -> Option<RecordId>) -> Option<Lane> {
        if self.turn.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (record, lane) = self.waiting.iter().find(|(record, lane)| head(lane) == Some(**record))?;
        self.turn = Some(*record);
        Some(lane.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Partition;

    fn lane(key: &str) -> Lane {
        Lane { partition: Partition::of(key), key: key.into(), handler: "h".into() }
    }

    #[test]
    fn one_has_its_turn_until_it_has_gone() {
        let mut turns = Turns::default();
        turns.add(2, lane("b"));
        turns.add(1, lane("a"));
        turns.add(3, lane("b"));
        let head = |of: &Lane| Some(if *of.key == *"a" { 9 } else { 2 });
        assert_eq!(turns.pass_on(head), Some(lane("b")), "the first is not at the head of its lane");
        assert!(turns.is_of(2));
        assert_eq!(turns.pass_on(head), None);
        turns.remove(2);
        assert_eq!(turns.pass_on(|of| Some(if *of.key == *"a" { 1 } else { 3 })), Some(lane("a")));
    }
}
