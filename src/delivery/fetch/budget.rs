//! The budget of the next fetch: memory is shared so that slow lanes do not take all of it.
//!
//! If the records of a lane come faster than its handler takes them, they fill the memory. Once memory is
//! full, the queue of the lane is cut to a share, the rest is requeued, and the partition becomes *hot*:
//! fetches of all partitions leave it out, which the watermark allows, and it is fetched by itself whenever
//! half of its share is used up. Once such a fetch brings all that the partition has, the partition is no
//! longer hot. A handler whose many lanes fill memory is fetched by itself in the same way, see
//! [`HotHandlers`].

use std::time::Duration;

use tokio::time::Instant;

use super::hot_handlers::HotHandlers;
use crate::{
    delivery::config::DeliveryConfig,
    ownership::Ownership,
    partition::{Partition, PartitionSet},
    rules::pacing::{self, FetchLimits},
    store::Handlers,
};

/// The part of memory that one lane may keep after a cut: one of this many.
const SHARES: usize = 16;
/// However much hot handlers have, a fetch of the others waits until a batch divided by this number fits.
const LEAST_FETCH: usize = 16;
/// If memory is full for a shorter time, it is only busy, and no lane is too slow. Also the least time
/// between two cuts.
const BUSY_FOR: Duration = Duration::from_millis(20);
/// The least time between two fetches of a partition where a lane is released in steps, for the sake of its
/// other lanes. All other partitions wait for each such fetch.
const BETWEEN_STEPS: Duration = Duration::from_millis(100);

/// What the next fetch may bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchBudget {
    pub(super) partitions: PartitionSet,
    pub(super) handlers: Handlers,
    pub(super) limit: usize,
    /// Whether the fetch reads only some partitions, or only one handler.
    pub(super) part: bool,
}

/// What to do next, as the memory allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BudgetStep {
    /// Begin this fetch.
    Fetch(FetchBudget),
    /// Cut queues of at least this many records to half of it. If there are none, cut a handler.
    CutQueues(usize),
    /// Begin no fetch now.
    Wait,
}

/// Which fetch is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) at_all: bool,
    /// Whether something has happened that the last fetch cannot have seen.
    pub(super) news: bool,
}

/// Decides how memory is shared.
pub(super) struct Budget {
    /// The settings of delivery. Never changes.
    config: DeliveryConfig,
    /// Moving average of the payload bytes per record. Written by `brought`.
    mean_bytes: usize,
    /// Since when memory has been too full for a fetch. Set and cleared by `next_step`.
    full_since: Option<Instant>,
    /// Partitions that are fetched by themselves. Added by `cut` and `releasing`, removed by `cool` and
    /// `close`.
    hot: PartitionSet,
    /// Hot partitions whose last fetch brought no record that was admitted. Added by `exhausted`, cleared by
    /// `news`.
    exhausted: PartitionSet,
    /// Partitions with a lane that is released in steps, whose last fetch brought all that the last step
    /// returned. Added by `cool`. Removed at the next step, or by `fire` if there is news and `news_from` has
    /// come.
    between_steps: PartitionSet,
    /// When news of partitions in `between_steps` counts again. Set by `cool`.
    news_from: Instant,
    /// Whether there is news of partitions in `between_steps` that does not count yet. Set by `news`, cleared
    /// by `fire`.
    has_early_news: bool,
    /// Hot partitions with a released lane: their next fetch does not wait until their share is used up.
    /// Added by `released` and `releasing`, removed by `begin`.
    released: PartitionSet,
    /// Handlers that are fetched by themselves.
    handlers: HotHandlers,
}

impl Budget {
    pub(super) fn new(config: DeliveryConfig, now: Instant) -> Self {
        let handlers = HotHandlers::new(config.max_in_flight);
        Self {
            config,
            handlers,
            mean_bytes: 1024,
            full_since: None,
            hot: PartitionSet::EMPTY,
            exhausted: PartitionSet::EMPTY,
            between_steps: PartitionSet::EMPTY,
            news_from: now,
            has_early_news: false,
            released: PartitionSet::EMPTY,
        }
    }

    /// There is news: records that could not be admitted may be admitted now.
    pub(super) fn news(&mut self) {
        self.handlers.news();
        self.exhausted = PartitionSet::EMPTY;
        self.has_early_news = !self.between_steps.is_empty();
    }

    /// When early news counts, if there is any.
    pub(super) fn next_news(&self) -> Option<Instant> {
        self.has_early_news.then_some(self.news_from)
    }

    /// If the time of early news has come, lets it count.
    pub(super) fn fire(&mut self, now: Instant) {
        if self.next_news().is_some_and(|at| at <= now) {
            (self.between_steps, self.has_early_news) = (PartitionSet::EMPTY, false);
        }
    }

    /// A step has ended in these partitions, or a stop has changed: their next fetch brings something.
    pub(super) fn stops_change(&mut self, partitions: PartitionSet) {
        self.between_steps = self.between_steps.without(partitions);
    }

    /// A lane was released in these partitions.
    pub(super) fn released(&mut self, partitions: PartitionSet) {
        self.released = self.released.union(partitions);
        self.exhausted = self.exhausted.without(partitions);
        self.between_steps = self.between_steps.without(partitions);
    }

    /// Lanes are released in steps in these partitions. This makes the partitions hot, because the ids of
    /// returned records are far below all others. Returns whether a partition has become hot.
    pub(super) fn releasing(&mut self, partitions: PartitionSet) -> bool {
        let new = partitions.without(self.hot);
        self.hot = self.hot.union(new);
        self.released = self.released.union(new);
        !new.is_empty()
    }

    /// Queues were cut in these partitions.
    pub(super) fn cut(&mut self, partitions: PartitionSet) {
        self.hot = self.hot.union(partitions);
    }

    /// If handlers fill memory, makes so many of them hot that one has more than its share. `handlers` has the
    /// number and the id of each handler, `in_memory` the places of a handler by number. Returns the numbers of
    /// the handlers that are to be cut, and to how many records each.
    pub(super) fn cut_handlers<'a>(
        &mut self,
        handlers: impl Iterator<Item = (usize, &'a str)>,
        in_memory: impl Fn(usize) -> usize,
        now: Instant,
    ) -> (Vec<usize>, usize) {
        let handlers: Vec<_> = handlers.collect();
        loop {
            let added = self.handlers.add(handlers.iter().copied(), &in_memory, now);
            let over = self.handlers.over_share(&in_memory);
            // If the handler has less than its share, a further one fills memory, and both shares are smaller.
            if added.is_none() || !over.is_empty() {
                return (over, self.handlers.share());
            }
        }
    }

    /// A fetch of a part brought no record that was admitted.
    pub(super) fn exhausted(&mut self, partitions: PartitionSet, handlers: &Handlers) {
        self.handlers.exhausted(handlers);
        if *handlers == Handlers::Every {
            self.exhausted = self.exhausted.union(partitions);
        }
    }

    /// A fetch of these handlers has taken this time. Returns whether all hot handlers were given up.
    pub(super) fn walked(&mut self, handlers: &Handlers, took: Duration, now: Instant) -> bool {
        self.handlers.walked(handlers, took, now)
    }

    /// A fetch of one handler brought all that the handler has. Returns whether the handler was hot until
    /// now.
    pub(super) fn cool_handler(&mut self, handlers: &Handlers) -> bool {
        self.handlers.cool(handlers)
    }

    /// A fetch of these partitions by themselves brought all that they have. If a lane is released in steps,
    /// its partition stays hot, and the next fetch waits for the next step. Returns whether a partition is no
    /// longer hot.
    pub(super) fn cool(&mut self, partitions: PartitionSet, releasing: PartitionSet, now: Instant) -> bool {
        let releasing = partitions.without(partitions.without(releasing));
        self.between_steps = self.between_steps.union(releasing);
        self.news_from = now + BETWEEN_STEPS;
        let hot = self.hot.without(partitions.without(releasing));
        std::mem::replace(&mut self.hot, hot) != hot
    }

    /// Some partitions may not be owned any more: they are no longer hot.
    pub(super) fn close(&mut self, is_open: impl Fn(Partition) -> bool) {
        self.hot = self.hot.iter().filter(|partition| is_open(*partition)).collect();
    }

    /// A fetch of these partitions and handlers begins.
    pub(super) fn begin(&mut self, partitions: PartitionSet, handlers: &Handlers) {
        self.handlers.begin(handlers);
        self.released = self.released.without(partitions);
    }

    /// A fetch has brought records with this mean payload, in bytes.
    pub(super) fn brought(&mut self, mean_bytes: usize) {
        self.mean_bytes = (self.mean_bytes + mean_bytes) / 2;
    }

    /// What to fetch next, and how many records. The arguments are the records and payload bytes in memory,
    /// and the places in memory of a handler by number. The last quarter of memory is kept for partitions
    /// without records in memory, a little per fetch: so a few slow keys never hide the other partitions.
    pub(super) fn next_step(
        &mut self,
        (records, bytes): (usize, usize),
        of_handler: impl Fn(usize) -> usize,
        wanted: Wanted,
        ownership: &Ownership,
        now: Instant,
    ) -> BudgetStep {
        let DeliveryConfig { batch_size, max_in_flight, max_in_flight_bytes, .. } = self.config;
        let mean_bytes = self.mean_bytes;
        let size = |limits, records, bytes| pacing::fetch_size(limits, records, bytes, mean_bytes);
        let share = (max_in_flight / SHARES).max(2);
        // If memory is too full for a hungry partition, the other checks go on, because other lanes may fill
        // memory.
        if let Some(partition) = self.hungry(share / 2, ownership) {
            let limits = FetchLimits { batch_size: share, max_in_flight, max_in_flight_bytes };
            let partitions = [partition].into_iter().collect();
            let (handlers, limit) = (Handlers::Every, size(limits, records, bytes));
            if limit > 0 {
                return some(FetchBudget { partitions, handlers, limit, part: true });
            }
        }
        if let Some((handlers, wants)) = self.handlers.hungry(wanted.at_all, &of_handler) {
            let limits =
                FetchLimits { batch_size: wants.min(batch_size), max_in_flight, max_in_flight_bytes };
            let (partitions, limit) = (self.common(ownership), size(limits, records, bytes));
            if limit > 0 {
                return some(FetchBudget { partitions, handlers, limit, part: true });
            }
        }
        if !wanted.at_all {
            return BudgetStep::Wait;
        }
        let common = FetchLimits {
            batch_size,
            max_in_flight: max_in_flight - max_in_flight / 4,
            max_in_flight_bytes: max_in_flight_bytes - max_in_flight_bytes / 4,
        };
        let hot = self.handlers.in_memory(of_handler);
        let (limit, batch) = (size(common, records, bytes), size(common, 0, 0));
        // What hot handlers have may stay for long, so no more than this becomes free.
        let most = size(common, hot, max_in_flight_bytes / max_in_flight.max(1) * hot);
        // A fetch of a few records costs as much as one of many, so it waits until half of what may come fits.
        if records == 0 || limit >= most.div_ceil(2).max(batch / LEAST_FETCH).max(1) {
            self.full_since = None;
            let (partitions, handlers) = (self.common(ownership), self.handlers.others());
            return some(FetchBudget { partitions, handlers, limit, part: false });
        }
        if now - *self.full_since.get_or_insert(now) >= BUSY_FOR {
            self.full_since = None;
            return BudgetStep::CutQueues(share);
        }
        let kept =
            FetchLimits { batch_size: (max_in_flight / 64).max(1), max_in_flight, max_in_flight_bytes };
        let partitions = if wanted.news { ownership.idle() } else { PartitionSet::EMPTY };
        let (handlers, limit) = (self.handlers.others(), size(kept, records, bytes));
        some(FetchBudget { partitions, handlers, limit, part: true })
    }

    /// The owned partitions that are not hot.
    fn common(&self, ownership: &Ownership) -> PartitionSet {
        ownership.owned().without(self.hot)
    }

    /// A hot partition with at most `low` records in memory, or with a released lane.
    fn hungry(&self, low: usize, ownership: &Ownership) -> Option<Partition> {
        let is_low = |partition: &Partition| {
            let few = ownership.permits(*partition) <= low || self.released.contains(*partition);
            ownership.is_open(*partition) && few
        };
        self.hot.without(self.exhausted).without(self.between_steps).iter().find(is_low)
    }
}

fn some(budget: FetchBudget) -> BudgetStep {
    if budget.limit == 0 || budget.partitions.is_empty() {
        BudgetStep::Wait
    } else {
        BudgetStep::Fetch(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::fixtures;

    const WANTED: Wanted = Wanted { at_all: true, news: true };

    /// A budget that owns all partitions, with one hot partition.
    fn with_a_hot_one() -> (Budget, Ownership, PartitionSet) {
        let mut budget = Budget::new(DeliveryConfig::default(), Instant::now());
        let hot: PartitionSet = [Partition::of("a")].into_iter().collect();
        budget.cut(hot);
        (budget, fixtures::owning_all(), hot)
    }

    fn fetched(budget: &mut Budget, ownership: &Ownership) -> PartitionSet {
        match budget.next_step((0, 0), |_| 0, WANTED, ownership, Instant::now()) {
            BudgetStep::Fetch(budget) => budget.partitions,
            BudgetStep::CutQueues(_) | BudgetStep::Wait => PartitionSet::EMPTY,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_exhausted_partition_is_fetched_again_once_there_is_news() {
        let (mut budget, ownership, hot) = with_a_hot_one();
        assert_eq!(fetched(&mut budget, &ownership), hot, "by itself, and first");
        budget.exhausted(hot, &Handlers::Every);
        assert_eq!(fetched(&mut budget, &ownership), PartitionSet::ALL.without(hot));
        budget.news();
        assert_eq!(fetched(&mut budget, &ownership), hot);
    }

    /// Another process has released a lane: its partition is fetched once, although it has many records in
    /// memory.
    #[tokio::test(start_paused = true)]
    async fn a_partition_with_a_released_lane_is_fetched_however_much_of_it_is_in_memory() {
        let (mut budget, ownership, hot) = with_a_hot_one();
        let share = budget.config.max_in_flight / SHARES;
        let permits: Vec<_> =
            (0..=share / 2).map(|_| ownership.permit(Partition::of("a")).unwrap()).collect();
        let others = PartitionSet::ALL.without(hot);
        assert_eq!(fetched(&mut budget, &ownership), others, "it has enough in memory");
        budget.exhausted(hot, &Handlers::Every);
        budget.released(hot);
        assert_eq!(fetched(&mut budget, &ownership), hot);
        budget.begin(hot, &Handlers::Every);
        assert_eq!(fetched(&mut budget, &ownership), others, "once");
        drop(permits);
        assert_eq!(fetched(&mut budget, &ownership), hot, "its share is used up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_has_brought_all_is_like_the_others() {
        let (mut budget, ownership, hot) = with_a_hot_one();
        let now = Instant::now();
        assert!(!budget.cool(hot, hot, now), "it stays hot while a lane of it goes on in steps");
        assert!(budget.cool(hot, PartitionSet::EMPTY, now));
        assert_eq!(fetched(&mut budget, &ownership), PartitionSet::ALL);
    }

    #[tokio::test(start_paused = true)]
    async fn between_two_steps_the_other_lanes_are_seen_from_time_to_time() {
        let (mut budget, ownership, hot) = with_a_hot_one();
        let others = PartitionSet::ALL.without(hot);
        budget.cool(hot, hot, Instant::now());
        assert_eq!((fetched(&mut budget, &ownership), budget.next_news()), (others, None));
        budget.news();
        assert_eq!(fetched(&mut budget, &ownership), others, "too early");
        budget.fire(Instant::now());
        tokio::time::advance(BETWEEN_STEPS).await;
        assert_eq!(budget.next_news(), Some(Instant::now()), "somebody is to ask again then");
        budget.fire(Instant::now());
        assert_eq!((fetched(&mut budget, &ownership), budget.next_news()), (hot, None));
        budget.cool(hot, hot, Instant::now());
        budget.stops_change(hot);
        assert_eq!(fetched(&mut budget, &ownership), hot, "the next step");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_memory_is_cut_when_it_stays_full_and_the_idle_are_still_fetched() {
        let (mut budget, ownership, _) = with_a_hot_one();
        budget.close(|_| false);
        let full = (budget.config.max_in_flight - budget.config.max_in_flight / 4, 0);
        let now = Instant::now();
        let BudgetStep::Fetch(idle) = budget.next_step(full, |_| 0, WANTED, &ownership, now) else {
            panic!("memory is kept for the idle")
        };
        assert_eq!((idle.part, idle.limit), (true, 62), "the last quarter, a little at a time");
        let later = now + BUSY_FOR;
        assert_eq!(
            budget.next_step(full, |_| 0, WANTED, &ownership, later),
            BudgetStep::CutQueues(budget.config.max_in_flight / SHARES)
        );
        let quiet = Wanted { at_all: true, news: false };
        assert_eq!(budget.next_step(full, |_| 0, quiet, &ownership, later), BudgetStep::Wait);
    }

    /// A hungry partition that does not fit must not hide the handlers and lanes that fill memory.
    #[tokio::test(start_paused = true)]
    async fn what_fills_memory_is_cut_though_something_hot_is_hungry() {
        let (mut budget, ownership, _) = with_a_hot_one();
        let handlers = [(0, "a"), (1, "b")];
        budget.cut_handlers(handlers.into_iter(), |number| 3_000 - number, Instant::now());
        let full = (budget.config.max_in_flight, 0);
        let (now, nothing) = (Instant::now(), |_| 0);
        assert_eq!(budget.next_step(full, nothing, WANTED, &ownership, now), BudgetStep::Wait);
        let later = now + BUSY_FOR;
        assert!(matches!(
            budget.next_step(full, nothing, WANTED, &ownership, later),
            BudgetStep::CutQueues(_)
        ));
    }

    /// The byte limit is kept by fetching fewer records, as large as the recent ones.
    #[tokio::test(start_paused = true)]
    async fn large_payloads_are_fetched_in_smaller_batches() {
        let config = DeliveryConfig {
            batch_size: 1_000,
            max_in_flight: 4_000,
            max_in_flight_bytes: 4 << 20,
            ..DeliveryConfig::default()
        };
        let mut budget = Budget::new(config, Instant::now());
        let ownership = fixtures::owning_all();
        let mut limit = || match budget.next_step((1, 0), |_| 0, WANTED, &ownership, Instant::now()) {
            BudgetStep::Fetch(next) => {
                budget.brought(10 << 10);
                next.limit
            }
            BudgetStep::CutQueues(_) | BudgetStep::Wait => 0,
        };
        let limits: Vec<usize> = (0..12).map(|_| limit()).collect();
        // 3 MiB, in records of 1 KiB at first, then of 5.5 KiB, and in the end of 10 KiB.
        assert_eq!((&limits[..3], limits[11]), (&[1_000, 558, 396][..], 307), "{limits:?}");
    }

    /// Less than half a batch fits: a fetch of so few would cost as much as one of many.
    #[tokio::test(start_paused = true)]
    async fn a_fetch_waits_until_half_a_batch_fits() {
        let config = DeliveryConfig { batch_size: 100, max_in_flight: 400, ..DeliveryConfig::default() };
        let (mut budget, ownership) = (Budget::new(config, Instant::now()), fixtures::owning_all());
        let wanted = Wanted { at_all: true, news: false };
        let mut limit =
            |records| match budget.next_step((records, 0), |_| 0, wanted, &ownership, Instant::now()) {
                BudgetStep::Fetch(next) => next.limit,
                BudgetStep::CutQueues(_) | BudgetStep::Wait => 0,
            };
        assert_eq!([0, 200, 201, 250, 251, 300].map(&mut limit), [100, 100, 99, 50, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hot_handler_is_fetched_by_itself_unless_memory_is_full() {
        let config = DeliveryConfig { batch_size: 100, max_in_flight: 400, ..DeliveryConfig::default() };
        let (mut budget, ownership) = (Budget::new(config, Instant::now()), fixtures::owning_all());
        let handlers = [(0, "a"), (1, "b")];
        assert_eq!(
            budget.cut_handlers(handlers.into_iter(), |number| [90, 10][number], Instant::now()),
            (vec![], 200)
        );
        let only = Handlers::Only("a".into());
        let idle = Wanted { at_all: false, news: false };
        let mut next = |in_memory, of_a| match budget.next_step(
            (in_memory, 0),
            |_| of_a,
            idle,
            &ownership,
            Instant::now(),
        ) {
            BudgetStep::Fetch(next) => Some((next.handlers, next.limit, next.part)),
            BudgetStep::CutQueues(_) | BudgetStep::Wait => None,
        };
        assert_eq!(next(0, 0), Some((only.clone(), 100, true)));
        assert_eq!(next(200, 100), Some((only.clone(), 100, true)), "half of its share is left");
        assert_eq!(next(390, 100), Some((only.clone(), 10, true)));
        assert_eq!(next(400, 100), None, "memory is full");
        assert_eq!(next(200, 101), None, "it has enough");
        assert!(budget.cool_handler(&only));
        assert!(!budget.cool_handler(&only), "it is like the others");
    }

    /// None has more than half of the memory, and the three fill it.
    #[tokio::test(start_paused = true)]
    async fn so_many_handlers_are_cut_that_memory_is_free_again() {
        let mut budget = Budget::new(DeliveryConfig::default(), Instant::now());
        let handlers = [(0, "a"), (1, "b"), (2, "c"), (3, "d")];
        let cut = budget.cut_handlers(
            handlers.into_iter(),
            |number| [1_000, 1_000, 1_000, 9][number],
            Instant::now(),
        );
        assert_eq!(cut, (vec![2, 1, 0], 666));
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_becomes_hot_once_if_a_lane_is_released_in_steps() {
        let (mut budget, _, hot) = with_a_hot_one();
        assert!(!budget.releasing(hot), "it is hot already");
        assert!(budget.releasing(PartitionSet::ALL));
        assert!(!budget.releasing(PartitionSet::ALL));
    }
}
