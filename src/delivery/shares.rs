//! What the runs of each handler take of an instance, so that no handler takes all.

use std::sync::Arc;

use super::{outcome::Run, work::Item};
use crate::{
    handler::Entry,
    rules::{pacing::FetchLimits, sharing},
};

/// The runs that the executor may begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    /// Whether they are runs of transactional handlers. Other handlers have calls of their own.
    pub(super) transactional: bool,
    /// How many may begin, at least one.
    pub(super) free: usize,
}

/// The runs of one handler.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// Runs under way. Raised by `begin`, lowered by `land`.
    runs: usize,
    /// The places in memory of their records that were not reported. Raised by `begin`, lowered by `land`.
    places: usize,
}

/// The runs of all handlers.
pub(super) struct Shares {
    /// The limits of the memory. Never changes.
    limits: FetchLimits,
    /// The bytes of a place of the memory. Never changes.
    bytes_per_place: usize,
    /// The number of handlers that are not transactional. Never changes.
    plain: usize,
    /// The number of transactional handlers. Never changes.
    transactional: usize,
    /// By the number of the handler. Added by `begin`.
    taken: Vec<Taken>,
    /// The sum of the places in `taken`. Written with them.
    places: usize,
}

impl Shares {
    /// The shares of these handlers, which are all of the instance.
    pub(super) fn new<'a>(handlers: impl Iterator<Item = &'a Arc<Entry>>, limits: FetchLimits) -> Self {
        let (transactional, plain): (Vec<_>, Vec<_>) =
            handlers.partition(|entry| entry.form.is_transactional());
        let (plain, transactional) = (plain.len(), transactional.len());
        let bytes_per_place = sharing::bytes_per_place(limits);
        Self { limits, bytes_per_place, plain, transactional, taken: Vec::new(), places: 0 }
    }

    /// The limits of the memory that is shared.
    pub(super) fn limits(&self) -> FetchLimits {
        self.limits
    }

    /// The most records that a run of this handler may take now, 0 if no run may begin. A handler that is alone has
    /// nothing to share.
    pub(super) fn longest_run(&self, handler: usize, vacancy: Vacancy) -> usize {
        let Taken { runs, places } = self.of(handler);
        let alone_in_kind = if vacancy.transactional { self.transactional < 2 } else { self.plain < 2 };
        if self.is_alone() {
            usize::MAX
        } else if alone_in_kind || sharing::may_call(runs, vacancy.free) {
            sharing::run_records(places, self.outside_runs())
        } else {
            0
        }
    }

    /// The runs of this handler that are under way.
    pub(super) fn runs(&self, handler: usize) -> usize {
        self.of(handler).runs
    }

    /// Whether a run is under way.
    pub(super) fn is_any(&self) -> bool {
        self.taken.iter().any(|taken| taken.runs > 0)
    }

    /// A run begins.
    pub(super) fn begin(&mut self, run: &Run) {
        let (handler, places) = (run.entry.number, self.places(run));
        if self.taken.len() <= handler {
            self.taken.resize(handler + 1, Taken::default());
        }
        self.taken[handler].runs += 1;
        self.taken[handler].places += places;
        self.places += places;
    }

    /// A run was reported, or a part of it.
    pub(super) fn land(&mut self, run: &Run) {
        let places = self.places(run);
        let Some(taken) = self.taken.get_mut(run.entry.number) else { return };
        taken.runs = taken.runs.saturating_sub(usize::from(!run.goes_on));
        let places = if taken.runs == 0 { taken.places } else { places.min(taken.places) };
        taken.places -= places;
        self.places -= places;
    }

    /// Whether the instance has only one handler, which takes everything.
    pub(super) fn is_alone(&self) -> bool {
        self.plain + self.transactional < 2
    }

    /// The places in memory that are in no run.
    pub(super) fn outside_runs(&self) -> usize {
        self.limits.max_in_flight.saturating_sub(self.places)
    }

    /// The places in memory of a record.
    pub(super) fn places_of(&self, item: &Item) -> usize {
        sharing::places(item.record.payload.len(), self.bytes_per_place)
    }

    /// The places in memory of the records of a run. Not counted if nobody shares the memory.
    fn places(&self, run: &Run) -> usize {
        if self.is_alone() {
            return 0;
        }
        let items = run.lanes.iter().flat_map(|lane| &lane.items);
        items.map(|(item, _)| self.places_of(item)).sum()
    }

    fn of(&self, handler: usize) -> Taken {
        self.taken.get(handler).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::fixtures::{self, PLAIN};

    /// Runs of two handlers, of this many records each.
    fn runs(records: i64) -> [Run; 2] {
        let ownership = fixtures::owning_all();
        [0, 1].map(|number| {
            let mut run = fixtures::run(&ownership, records);
            Arc::get_mut(&mut run.entry).unwrap().number = number;
            run
        })
    }

    fn limits(max_in_flight: usize) -> FetchLimits {
        FetchLimits { batch_size: 1, max_in_flight, max_in_flight_bytes: 1 << 20 }
    }

    fn shares(runs: &[Run; 2], max_in_flight: usize) -> Shares {
        Shares::new(runs.iter().map(|run| &run.entry), limits(max_in_flight))
    }

    /// Begins runs until the first handler has its share. Returns the number.
    fn fill(shares: &mut Shares, run: &Run, calls: usize) -> usize {
        let vacancy = |begun| Vacancy { transactional: false, free: calls - begun };
        (0..calls)
            .take_while(|begun| {
                let may = shares.longest_run(run.entry.number, vacancy(*begun)) > 0;
                if may {
                    shares.begin(run);
                }
                may
            })
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_leaves_calls_to_the_other_one() {
        let [one, two] = runs(1);
        let mut shares = shares(&[one, two], 100_000);
        let [mut one, two] = runs(1);
        assert_eq!(fill(&mut shares, &one, 256), 192);
        let left = Vacancy { transactional: false, free: 64 };
        assert_eq!((shares.longest_run(0, left), shares.runs(0)), (0, 192));
        assert!(shares.longest_run(two.entry.number, left) > 0);
        shares.land(&one);
        assert_eq!(shares.longest_run(0, left), 0, "more reports of the run follow");
        one.goes_on = false;
        shares.land(&one);
        assert!(shares.longest_run(0, Vacancy { free: 65, ..left }) > 0);
        assert_eq!(shares.runs(0), 191);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_leaves_memory_to_the_other_one() {
        let [one, two] = runs(10);
        let mut shares = shares(&[one, two], 200);
        let [mut one, _] = runs(10);
        assert_eq!(fill(&mut shares, &one, 256), 7, "a third, which the last run exceeds");
        assert!(shares.longest_run(1, PLAIN) > 0);
        one.goes_on = false;
        (0..7).for_each(|_| shares.land(&one));
        assert_eq!((shares.places, shares.is_any()), (0, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_is_alone_takes_all() {
        let [one, _] = runs(1);
        let mut shares = Shares::new([&one.entry].into_iter(), limits(10));
        let [one, _] = runs(1);
        assert_eq!(fill(&mut shares, &one, 256), 256);
    }
}
