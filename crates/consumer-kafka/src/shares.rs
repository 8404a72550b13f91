//! What each topic has of a consumer's calls and of its memory, so that no topic takes all: a handler that stands
//! still leaves something to the handlers of the other topics. `keylane` has the same rule in
//! `src/rules/sharing.rs`, which no version number covers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A topic may have so many calls or bytes for each one that is free, the last call not counted.
const PER_FREE: usize = 3;

/// One topic.
struct Topic<L> {
    /// Lanes that are ready, in the order in which they became so. Pushed by `push`, popped by `next` and `next_of`.
    ready: VecDeque<L>,
    /// Calls under way. Raised by `begin`, lowered by `end`.
    calls: usize,
    /// The bytes of the messages in memory. Raised by `receive`, lowered by `release`.
    bytes: usize,
    /// Whether the topic has its share of the memory. Written by `refill`.
    full: bool,
}

/// All topics of a consumer.
pub(crate) struct Shares<L> {
    /// The most calls at once. Never changes.
    most_calls: usize,
    /// The most bytes in memory. Never changes.
    most_bytes: usize,
    /// By name. Added by `new`.
    topics: BTreeMap<Arc<str>, Topic<L>>,
    /// The topic that had the last turn. Moved on by `next`.
    turn: Option<Arc<str>>,
}

impl<L> Shares<L> {
    pub(crate) fn new(
        topics: impl Iterator<Item = Arc<str>>,
        (most_calls, most_bytes): (usize, usize),
    ) -> Self {
        let topic = |name| (name, Topic { ready: VecDeque::new(), calls: 0, bytes: 0, full: false });
        Self { most_calls, most_bytes, topics: topics.map(topic).collect(), turn: None }
    }

    /// The lane is ready.
    pub(crate) fn push(&mut self, topic: &str, lane: L) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.ready.push_back(lane);
        }
    }

    /// The next lane whose topic may begin a call, and its topic. Topics take turns.
    pub(crate) fn next(&mut self) -> Option<(Arc<str>, L)> {
        let calls: usize = self.topics.values().map(|topic| topic.calls).sum();
        let (free, alone) = (self.most_calls.saturating_sub(calls), self.topics.len() < 2);
        let may_call = |topic: &Topic<L>| {
            alone || topic.calls == 0 || topic.calls < PER_FREE.saturating_mul(free.saturating_sub(1))
        };
        let is_after = |name: &Arc<str>| self.turn.as_ref().is_none_or(|turn| name > turn);
        let open = |(name, topic): (&Arc<str>, &Topic<L>)| {
            (free > 0 && !topic.ready.is_empty() && may_call(topic)).then(|| Arc::clone(name))
        };
        let later = self.topics.iter().filter(|(name, _)| is_after(name)).find_map(open);
        let name = later.or_else(|| self.topics.iter().find_map(open))?;
        let lane = self.topics.get_mut(&name)?.ready.pop_front()?;
        self.turn = Some(Arc::clone(&name));
        Some((name, lane))
    }

    /// A further lane of the topic, for the same call.
    pub(crate) fn next_of(&mut self, topic: &str) -> Option<L> {
        self.topics.get_mut(topic)?.ready.pop_front()
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, topic: &str) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.calls += 1;
        }
    }

    /// A call has ended.
    pub(crate) fn end(&mut self, topic: &str) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.calls = topic.calls.saturating_sub(1);
        }
    }

    /// A message has come.
    pub(crate) fn receive(&mut self, topic: &str, bytes: usize) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.bytes += bytes;
        }
    }

    /// A message has left the memory.
    pub(crate) fn release(&mut self, topic: &str, bytes: usize) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.bytes = topic.bytes.saturating_sub(bytes);
        }
    }

    /// Whether no more messages of the topic are to come.
    pub(crate) fn is_full(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.full)
    }

    /// Compares all topics with their shares of the memory. Returns those that are full since, or no longer. A topic
    /// that is full stays so until it has half of its share.
    pub(crate) fn refill(&mut self) -> Vec<Arc<str>> {
        let bytes: usize = self.topics.values().map(|topic| topic.bytes).sum();
        let free = self.most_bytes.saturating_sub(bytes);
        let share = if self.topics.len() < 2 { self.most_bytes } else { PER_FREE.saturating_mul(free) };
        let mut changed = Vec::new();
        for (name, topic) in &mut self.topics {
            let full = topic.bytes > if topic.full { share / 2 } else { share };
            if full != topic.full {
                topic.full = full;
                changed.push(Arc::clone(name));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(topics: &[&str], most: (usize, usize)) -> Shares<usize> {
        Shares::new(topics.iter().map(|name| Arc::from(*name)), most)
    }

    /// Begins calls until there is none to begin. Returns the topics.
    fn begin_all(shares: &mut Shares<usize>) -> Vec<Arc<str>> {
        let next = || {
            let (name, _) = shares.next()?;
            shares.begin(&name);
            Some(name)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_topic_leaves_calls_to_the_others() {
        let mut shares = shares(&["a", "b"], (32, 1));
        (0..100).for_each(|lane| shares.push("a", lane));
        assert_eq!(begin_all(&mut shares).len(), 24);
        (0..100).for_each(|lane| shares.push("b", lane));
        let begun = begin_all(&mut shares);
        assert_eq!((begun.len(), begun.iter().all(|name| &**name == "b")), (6, true));
        shares.end("b");
        assert_eq!(begin_all(&mut shares), [Arc::from("b")]);
    }

    #[test]
    fn topics_take_turns_and_one_alone_takes_all() {
        let mut two = shares(&["a", "b"], (32, 1));
        for lane in 0..3 {
            two.push("a", lane);
            two.push("b", lane);
        }
        let turns: Vec<String> = begin_all(&mut two).iter().map(|name| name.to_string()).collect();
        assert_eq!(turns, ["a", "b", "a", "b", "a", "b"]);
        let mut one = shares(&["a"], (32, 1));
        (0..100).for_each(|lane| one.push("a", lane));
        assert_eq!((begin_all(&mut one).len(), one.next_of("a")), (32, Some(32)));
    }

    #[test]
    fn a_topic_leaves_memory_to_the_others() {
        let mut shares = shares(&["a", "b"], (1, 1000));
        shares.receive("a", 750);
        assert!(shares.refill().is_empty());
        shares.receive("a", 1);
        assert_eq!(shares.refill(), [Arc::from("a")]);
        shares.receive("b", 100);
        assert!(shares.refill().is_empty() && shares.is_full("a") && !shares.is_full("b"));
        shares.release("a", 200);
        assert!(shares.refill().is_empty(), "it has more than half of its share");
        shares.release("a", 100);
        assert_eq!((shares.refill(), shares.is_full("a")), (vec![Arc::from("a")], false));
    }

    #[test]
    fn a_topic_that_is_alone_has_the_whole_memory() {
        let mut shares = shares(&["a"], (1, 1000));
        shares.receive("a", 1000);
        assert!(shares.refill().is_empty());
        shares.receive("a", 1);
        assert_eq!(shares.refill().len(), 1);
        shares.release("a", 501);
        assert_eq!((shares.refill().len(), shares.is_full("a")), (1, false));
    }
}
