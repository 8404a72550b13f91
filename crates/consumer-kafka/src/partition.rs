//! The messages of a partition in memory: the finished ones, and those that wait behind others of their key.
//! Plain data, without clock and broker.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// The lane of a message. A message without a key has a lane of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey {
    Key(Vec<u8>),
    Alone(i64),
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The lane is in the queue of lanes that may run.
    Ready,
    /// Messages of the lane are with a handler, or on the way to the dead letters.
    Busy,
    /// The first message waits for its next attempt.
    Waiting,
}

#[derive(Debug)]
pub(crate) struct Lane<M> {
    queue: VecDeque<Arc<M>>,
    state: State,
    /// The counted failures of the first message.
    pub(crate) failures: u32,
}

#[derive(Debug)]
pub(crate) struct Partition<M> {
    /// The number of the assignment, which differs from that of the next assignment of the partition.
    pub(crate) epoch: u64,
    /// The offsets of messages that are not committed, and whether each message is finished.
    offsets: VecDeque<(i64, bool)>,
    lanes: HashMap<LaneKey, Lane<M>>,
    /// The number of messages with handlers.
    busy: usize,
    /// Whether the partition goes to another consumer, so that no new run begins.
    revoked: bool,
    last: i64,
}

impl<M> Partition<M> {
    pub(crate) fn new(epoch: u64) -> Self {
        let (offsets, lanes) = (VecDeque::new(), HashMap::new());
        Self { epoch, offsets, lanes, busy: 0, revoked: false, last: -1 }
    }

    /// Adds a message. Returns whether its lane has become ready, or `None` if the message was added before.
    pub(crate) fn receive(&mut self, offset: i64, key: &LaneKey, message: Arc<M>) -> Option<bool> {
        if offset <= self.last || self.revoked {
            return None;
        }
        self.last = offset;
        self.offsets.push_back((offset, false));
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.queue.push_back(message);
            return Some(false);
        }
        let lane = Lane { queue: VecDeque::from([message]), state: State::Ready, failures: 0 };
        self.lanes.insert(key.clone(), lane);
        Some(true)
    }

    /// Takes up to this many messages from the head of a ready lane. The lane is busy from then on.
    pub(crate) fn take(&mut self, key: &LaneKey, limit: usize) -> Vec<Arc<M>> {
        let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.state == State::Ready) else {
            return Vec::new();
        };
        // A message that has failed before runs alone.
        let limit = if lane.failures > 0 { 1 } else { limit };
        let taken: Vec<Arc<M>> = lane.queue.drain(..limit.min(lane.queue.len())).collect();
        lane.state = State::Busy;
        self.busy += taken.len();
        taken
    }

    /// Finishes a message that was taken. Returns the next offset to commit, if it has moved.
    pub(crate) fn finish(&mut self, offset: i64) -> Option<i64> {
        self.busy -= 1;
        if let Ok(place) = self.offsets.binary_search_by_key(&offset, |(offset, _)| *offset) {
            self.offsets[place].1 = true;
        }
        let mut next = None;
        while let Some((offset, true)) = self.offsets.front() {
            next = Some(offset + 1);
            self.offsets.pop_front();
        }
        next
    }

    /// Returns taken messages to the head of their lane, in order. Returns the messages that are dropped
    /// instead.
    pub(crate) fn put_back(&mut self, key: &LaneKey, messages: Vec<Arc<M>>) -> Vec<Arc<M>> {
        self.busy -= messages.len();
        let Some(lane) = self.lanes.get_mut(key).filter(|_| !self.revoked) else { return messages };
        for message in messages.into_iter().rev() {
            lane.queue.push_front(message);
        }
        Vec::new()
    }

    /// Ends the run of a lane: the lane is ready, waits for an attempt, or is gone. Returns whether the lane
    /// is ready.
    pub(crate) fn release(&mut self, key: &LaneKey, waits: bool) -> bool {
        let Some(lane) = self.lanes.get_mut(key) else { return false };
        if lane.queue.is_empty() || self.revoked {
            self.lanes.remove(key);
            return false;
        }
        lane.state = if waits { State::Waiting } else { State::Ready };
        !waits
    }

    /// Makes a lane ready that waited for its next attempt.
    pub(crate) fn wake(&mut self, key: &LaneKey) -> bool {
        match self.lanes.get_mut(key).filter(|lane| lane.state == State::Waiting) {
            Some(lane) => {
                lane.state = State::Ready;
                true
            }
            None => false,
        }
    }

    /// Drops and returns all messages that are not with a handler.
    pub(crate) fn revoke(&mut self) -> Vec<Arc<M>> {
        self.revoked = true;
        let mut dropped = Vec::new();
        for lane in self.lanes.values_mut() {
            dropped.extend(lane.queue.drain(..));
        }
        self.lanes.retain(|_, lane| lane.state == State::Busy);
        dropped
    }

    pub(crate) fn lane(&mut self, key: &LaneKey) -> Option<&mut Lane<M>> {
        self.lanes.get_mut(key)
    }

    /// The number of messages that were added and are not committed.
    pub(crate) fn ahead(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.busy == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LaneKey {
        LaneKey::Key(name.as_bytes().to_vec())
    }

    #[test]
    fn only_what_is_finished_without_a_gap_is_committed() {
        let mut partition = Partition::new(0);
        for (offset, name) in [(3, "a"), (5, "b"), (6, "c")] {
            assert_eq!(partition.receive(offset, &key(name), Arc::new(offset)), Some(true));
        }
        assert_eq!(partition.receive(5, &key("b"), Arc::new(5)), None, "it was here before");
        for name in ["a", "b", "c"] {
            assert_eq!(partition.take(&key(name), 8).len(), 1);
        }
        assert_eq!((partition.finish(6), partition.finish(5), partition.ahead()), (None, None, 3));
        assert_eq!((partition.finish(3), partition.ahead(), partition.is_idle()), (Some(7), 0, true));
    }

    #[test]
    fn a_key_is_with_one_handler_at_a_time_and_in_order() {
        let mut partition = Partition::new(0);
        assert_eq!(partition.receive(0, &key("a"), Arc::new(0)), Some(true));
        assert_eq!(partition.receive(1, &key("a"), Arc::new(1)), Some(false));
        assert_eq!(partition.take(&key("a"), 2), [Arc::new(0), Arc::new(1)]);
        assert_eq!(partition.receive(2, &key("a"), Arc::new(2)), Some(false));
        assert!(partition.take(&key("a"), 2).is_empty(), "busy");
        assert!(partition.put_back(&key("a"), vec![Arc::new(0), Arc::new(1)]).is_empty());
        partition.lane(&key("a")).unwrap().failures = 1;
        assert!(!partition.release(&key("a"), true));
        assert!(partition.take(&key("a"), 2).is_empty(), "waiting");
        assert!(partition.wake(&key("a")) && !partition.wake(&key("a")));
        assert_eq!(partition.take(&key("a"), 9), [Arc::new(0)], "what has failed goes alone");
    }

    #[test]
    fn what_is_revoked_starts_nothing_new() {
        let mut partition = Partition::new(0);
        partition.receive(0, &key("a"), Arc::new(0));
        partition.receive(1, &key("a"), Arc::new(1));
        partition.receive(2, &key("b"), Arc::new(2));
        assert_eq!(partition.take(&key("a"), 1).len(), 1);
        assert_eq!(partition.revoke().len(), 2);
        assert_eq!(partition.receive(3, &key("c"), Arc::new(3)), None);
        assert!(!partition.is_idle());
        assert_eq!(partition.put_back(&key("a"), vec![Arc::new(0)]), [Arc::new(0)], "dropped");
        assert!(!partition.release(&key("a"), false) && partition.is_idle());
    }
}
