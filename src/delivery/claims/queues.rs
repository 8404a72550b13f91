//! Claimed records that wait for their calls, by handler. Handlers take turns.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use crate::{
    delivery::{
        outcome::{LaneRun, Run},
        shares::{Shares, Vacancy},
        work::{Item, LaneId},
    },
    handler::Entry,
    name::Name,
    record::RecordId,
};

/// The lane of every run. Claimed mode has no order, so lanes mean nothing.
const NO_LANE: LaneId = LaneId(0);
/// How many waiting records are searched through for those of one key, in batches.
const SEARCHED_PER_PLACE: usize = 8;

/// The records of one handler that wait.
struct Queue {
    /// The handler. Never changes.
    entry: Arc<Entry>,
    /// Pushed by `push` and `put_back`, popped by `next_run`.
    items: VecDeque<Item>,
    /// Up to when the rate has granted calls, since the start of `Queues`. Moved on by `next_run`.
    paid_to: Duration,
}

/// All records that wait for their calls.
pub(super) struct Queues {
    /// The zero of the rates. Never changes.
    start: Instant,
    /// What the runs of the handlers take. Raised by `next_run`, lowered by `land`.
    shares: Shares,
    /// By the number of the handler. Added by `push`.
    queues: BTreeMap<usize, Queue>,
    /// The handler that had the last turn. Moved on by `next_run`.
    turn: usize,
}

impl Queues {
    pub(super) fn new(shares: Shares, now: Instant) -> Self {
        Self { start: now, shares, queues: BTreeMap::new(), turn: 0 }
    }

    pub(super) fn push(&mut self, entry: &Arc<Entry>, item: Item) {
        let new = || Queue { entry: Arc::clone(entry), items: VecDeque::new(), paid_to: Duration::ZERO };
        self.queues.entry(entry.number).or_insert_with(new).items.push_back(item);
    }

    /// A record of a run was not tried: it is the next of its handler.
    pub(super) fn put_back(&mut self, handler: usize, item: Item) {
        if let Some(queue) = self.queues.get_mut(&handler) {
            queue.items.push_front(item);
        }
    }

    /// A run was reported, or a part of it.
    pub(super) fn land(&mut self, run: &Run) {
        self.shares.land(run);
    }

    /// Whether a run is under way.
    pub(super) fn is_running(&self) -> bool {
        self.shares.is_any()
    }

    /// The next run of a kind, of the handlers in turn.
    pub(super) fn next_run(&mut self, vacancy: Vacancy, now: Instant) -> Option<Run> {
        let since = now.saturating_duration_since(self.start);
        let is_open = |queue: &Queue| {
            let number = queue.entry.number;
            queue.entry.form.is_transactional() == vacancy.transactional
                && !queue.items.is_empty()
                && queue.may_start(self.shares.runs(number)).is_some_and(|at| at <= since)
                && self.shares.longest_run(number, vacancy) > 0
        };
        let after = self.queues.range(self.turn + 1..).chain(self.queues.range(..=self.turn));
        let number = after.filter(|(_, queue)| is_open(queue)).map(|(number, _)| *number).next()?;
        self.turn = number;
        let queue = self.queues.get_mut(&number)?;
        if let Some(Ok(paid_to)) = queue.entry.rate.map(|rate| rate.take(queue.paid_to, since)) {
            queue.paid_to = paid_to;
        }
        let run = Run::new(Arc::clone(&queue.entry), queue.take());
        self.shares.begin(&run);
        Some(run)
    }

    /// When the next record may run, if only the rate of its handler delays it.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.items.is_empty());
        let starts = waiting.filter_map(|(number, queue)| queue.may_start(self.shares.runs(*number)));
        Some(self.start + starts.min()?)
    }

    /// Drops these records.
    pub(super) fn remove(&mut self, records: &[RecordId]) {
        for queue in self.queues.values_mut() {
            queue.items.retain(|item| !records.contains(&item.id()));
        }
    }

    /// Takes all records that wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Item> {
        self.queues.values_mut().flat_map(|queue| queue.items.drain(..))
    }

    /// The handlers that have enough records waiting.
    pub(super) fn with_enough(&self, has_enough: impl Fn(usize) -> bool) -> Vec<Name> {
        let full = self.queues.values().filter(|queue| has_enough(queue.items.len()));
        full.map(|queue| Name::from(queue.entry.id.as_str())).collect()
    }
}

impl Queue {
    /// When a run may start beside `running` others. `None`: not before one of them has ended.
    fn may_start(&self, running: usize) -> Option<Duration> {
        let at = self.entry.rate.and_then(|rate| rate.take(self.paid_to, Duration::ZERO).err());
        let is_free = self.entry.concurrency.is_none_or(|most| running < most);
        is_free.then_some(at.unwrap_or_default())
    }

    /// The records of one call: one, or a batch. A batch that is not mixed has records of one key.
    fn take(&mut self) -> SmallVec<[LaneRun; 1]> {
        let Some(first) = self.items.pop_front() else { return SmallVec::new() };
        let alone = |item: Item| LaneRun::new(NO_LANE, [item]);
        match self.entry.form.batch() {
            None | Some((1, _)) => smallvec![alone(first)],
            Some((size, true)) => {
                let rest = self.items.len().min(size - 1);
                std::iter::once(first).chain(self.items.drain(..rest)).map(alone).collect()
            }
            Some((size, false)) => {
                let key = first.record.delivery.key.clone();
                let mut taken: SmallVec<[Item; 1]> = smallvec![first];
                let (mut at, mut searched) = (0, 0);
                while taken.len() < size && at < self.items.len() && searched < size * SEARCHED_PER_PLACE {
                    searched += 1;
                    match self.items[at].record.delivery.key == key {
                        true => taken.extend(self.items.remove(at)),
                        false => at += 1,
                    }
                }
                smallvec![LaneRun::new(NO_LANE, taken)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::fixtures, rules::rate::Rate};

    /// The records of a handler with these limits, all waiting.
    fn waiting(concurrency: Option<usize>, rate: Option<Rate>, keys: &[&str]) -> Queues {
        let (mut entry, ownership) = (fixtures::entry(), fixtures::owning_all());
        let of = Arc::get_mut(&mut entry).unwrap();
        (of.concurrency, of.rate) = (concurrency, rate);
        let mut waiting = Queues::new(fixtures::shares(), Instant::now());
        for (id, key) in (1..).zip(keys) {
            waiting.push(&entry, fixtures::item(&ownership, fixtures::record(id, key)));
        }
        waiting
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_run_at_once() {
        let (mut waiting, now) = (waiting(Some(2), None, &["a", "a", "a"]), Instant::now());
        assert!(waiting.next_run(fixtures::TRANSACTIONAL, now).is_none(), "none is transactional");
        assert!(
            waiting.next_run(fixtures::PLAIN, now).is_some()
                && waiting.next_run(fixtures::PLAIN, now).is_some()
        );
        assert!(waiting.next_run(fixtures::PLAIN, now).is_none() && waiting.next_start().is_none());
        waiting.land(&Run { goes_on: false, ..fixtures::run(&fixtures::owning_all(), 1) });
        assert!(waiting.next_run(fixtures::PLAIN, now).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_begin_in_a_second() {
        let (mut waiting, now) = (waiting(None, Some(Rate::per_second(10)), &["a", "b"]), Instant::now());
        assert!(waiting.next_run(fixtures::PLAIN, now).is_some());
        let later = now + Duration::from_millis(100);
        assert!(waiting.next_run(fixtures::PLAIN, now).is_none());
        assert_eq!(waiting.next_start(), Some(later));
        assert!(waiting.next_run(fixtures::PLAIN, later).is_some());
    }
}
