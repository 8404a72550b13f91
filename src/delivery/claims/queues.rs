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
    rules::claim,
};

/// The lane of every run. Claimed mode has no order, so lanes mean nothing.
const NO_LANE: LaneId = LaneId(0);
/// How many waiting records are searched through for those of one key, in batches.
const SEARCHED_PER_PLACE: usize = 8;

/// The records of one handler that wait.
struct Queue {
    /// The handler. Never changes.
    entry: Arc<Entry>,
    /// Pushed by `push` and `put_back`, popped by `next_run`, `remove`, `take_excess` and `take_all`.
    items: VecDeque<Item>,
    /// The places in memory of these records. Follows `items`.
    places: usize,
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
        let (places, paid_to) = (0, Duration::ZERO);
        let new = || Queue { entry: Arc::clone(entry), items: VecDeque::new(), places, paid_to };
        let queue = self.queues.entry(entry.number).or_insert_with(new);
        queue.places += self.shares.places_of(&item);
        queue.items.push_back(item);
    }

    /// A record of a run was not tried: it is the next of its handler.
    pub(super) fn put_back(&mut self, handler: usize, item: Item) {
        if let Some(queue) = self.queues.get_mut(&handler) {
            queue.places += self.shares.places_of(&item);
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
        let items = run.lanes.iter().flat_map(|lane| &lane.items);
        queue.places -= items.map(|(item, _)| self.shares.places_of(item)).sum::<usize>();
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
            queue.items.retain(|item| {
                let stays = !records.contains(&item.id());
                queue.places -= if stays { 0 } else { self.shares.places_of(item) };
                stays
            });
        }
    }

    /// Takes all records that wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Item> {
        self.queues.values_mut().flat_map(|queue| {
            queue.places = 0;
            queue.items.drain(..)
        })
    }

    /// The handlers that have enough waiting.
    pub(super) fn with_enough(&self, batch_size: usize) -> Vec<Name> {
        let enough = self.enough(batch_size);
        let full = self.queues.values().filter(|queue| self.waiting(queue) >= enough);
        full.map(|queue| Name::from(queue.entry.id.as_str())).collect()
    }

    /// Takes what waits beyond enough, the newest first, so that the memory is free for other handlers. Each handler
    /// still has enough, so that the same records are not claimed for it again. A handler that is alone keeps all.
    pub(super) fn take_excess(&mut self, batch_size: usize) -> Vec<Item> {
        let (enough, mut excess) = (self.enough(batch_size), Vec::new());
        if !self.is_shared() {
            return excess;
        }
        for queue in self.queues.values_mut() {
            while let Some(places) = queue.items.back().map(|item| self.shares.places_of(item))
                && queue.places - places >= enough
            {
                queue.places -= places;
                excess.extend(queue.items.pop_back());
            }
        }
        excess
    }

    /// Whether several handlers share the memory.
    pub(super) fn is_shared(&self) -> bool {
        !self.shares.is_alone()
    }

    fn enough(&self, batch_size: usize) -> usize {
        claim::enough(batch_size, self.is_shared().then(|| self.shares.outside_runs()))
    }

    fn waiting(&self, queue: &Queue) -> usize {
        if self.is_shared() { queue.places } else { queue.items.len() }
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
    use crate::{
        delivery::fixtures,
        record::Record,
        rules::{pacing::FetchLimits, rate::Rate},
    };

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

    /// Records of 1,000 bytes wait. The memory has 64 places of 100 bytes, and a record takes ten of them.
    #[tokio::test(start_paused = true)]
    async fn what_waits_beyond_enough_is_taken_back_if_there_are_other_handlers() {
        let (entry, ownership) = (fixtures::entry(), fixtures::owning_all());
        let memory = FetchLimits { batch_size: 100, max_in_flight: 64, max_in_flight_bytes: 6_400 };
        for (handlers, excess, left) in [(1, 0, 5), (2, 4, 1)] {
            let shares = Shares::new(std::iter::repeat_n(&entry, handlers), memory);
            let mut waiting = Queues::new(shares, Instant::now());
            for id in 1..=5 {
                let record = Record { payload: vec![0; 1_000], ..fixtures::record(id, "a") };
                waiting.push(&entry, fixtures::item(&ownership, record));
            }
            let taken: Vec<RecordId> = waiting.take_excess(100).iter().map(Item::id).collect();
            assert_eq!(taken, (left + 1..=5).rev().collect::<Vec<_>>());
            assert_eq!((taken.len(), waiting.with_enough(100).len()), (excess, handlers - 1));
            assert!(waiting.take_excess(100).is_empty());
            waiting.remove(&[1]);
            assert_eq!(waiting.with_enough(100).len(), 0);
            waiting.take_all().for_each(drop);
            assert_eq!(waiting.queues[&entry.number].places, 0);
        }
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

    #[tokio::test(start_paused = true)]
    async fn what_was_not_tried_is_the_next() {
        let (mut waiting, now) = (waiting(None, None, &["a", "b"]), Instant::now());
        let places = |waiting: &Queues| waiting.queues.values().map(|queue| queue.places).sum::<usize>();
        let before = places(&waiting);
        let mut run = waiting.next_run(fixtures::PLAIN, now).unwrap();
        assert_eq!(places(&waiting), before / 2);
        let (item, _) = run.lanes[0].items.pop().unwrap();
        waiting.put_back(run.entry.number, item);
        assert_eq!(places(&waiting), before);
        let again = waiting.next_run(fixtures::PLAIN, now).unwrap();
        assert_eq!(again.lanes[0].items[0].0.id(), 1);
    }
}
