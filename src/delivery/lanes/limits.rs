//! Handlers with a limit on their rate or their concurrency. Their lanes wait in queues of their own, so that
//! no other lane waits behind them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{delivery::work::LaneId, handler::Entry, rules::rate::Rate};

/// A handler with a limit.
struct Limited {
    /// The most runs under way. Never changes.
    concurrency: usize,
    /// The most calls per second. Never changes.
    rate: Option<Rate>,
    /// Whether the handler is transactional. Never changes.
    transactional: bool,
    /// Lanes that are ready and wait only for the limit. Pushed when a lane becomes ready, popped by `next`.
    waiting: VecDeque<LaneId>,
    /// Runs under way. Raised by `begin`, lowered by `end`.
    running: usize,
    /// Up to when the rate has granted calls, since `Limits::start`. Moved on by `begin`.
    paid_to: Duration,
}

/// The handlers with a limit that have had a ready lane.
#[derive(Default)]
pub(super) struct Limits {
    /// The zero of all times here: when a lane was first asked for. Set once, by `next` or `begin`.
    start: Option<Instant>,
    /// By the number of the handler. Added by `queue`.
    limited: BTreeMap<usize, Limited>,
}

impl Limits {
    /// The queue of ready lanes of this handler, or `None` if the handler has no limit.
    pub(super) fn queue(&mut self, entry: &Entry) -> Option<&mut VecDeque<LaneId>> {
        if entry.concurrency.is_none() && entry.rate.is_none() {
            return None;
        }
        let new = || Limited {
            concurrency: entry.concurrency.unwrap_or(usize::MAX),
            rate: entry.rate,
            transactional: entry.form.is_transactional(),
            waiting: VecDeque::new(),
            running: 0,
            paid_to: Duration::ZERO,
        };
        Some(&mut self.limited.entry(entry.number).or_insert_with(new).waiting)
    }

    /// The next lane that its limits let run now, of a transactional handler or not.
    pub(super) fn next(&mut self, transactional: bool, now: Instant) -> Option<LaneId> {
        let now = now - *self.start.get_or_insert(now);
        let of_kind = self.limited.values_mut().filter(|limited| limited.transactional == transactional);
        let mut open = of_kind.filter(|limited| limited.may_start().is_some_and(|at| at <= now));
        open.find_map(|limited| limited.waiting.pop_front())
    }

    /// A run of this handler begins.
    pub(super) fn begin(&mut self, handler: usize, now: Instant) {
        let now = now - *self.start.get_or_insert(now);
        let Some(limited) = self.limited.get_mut(&handler) else { return };
        limited.running += 1;
        if let Some(Ok(paid_to)) = limited.rate.map(|rate| rate.take(limited.paid_to, now)) {
            limited.paid_to = paid_to;
        }
    }

    /// A run of this handler has ended.
    pub(super) fn end(&mut self, handler: usize) {
        if let Some(limited) = self.limited.get_mut(&handler) {
            limited.running = limited.running.saturating_sub(1);
        }
    }

    /// When the next waiting lane may run, if only its rate delays it.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let waiting = self.limited.values().filter(|limited| !limited.waiting.is_empty());
        Some(self.start? + waiting.filter_map(Limited::may_start).min()?)
    }
}

impl Limited {
    /// When a run may start. `None`: not before another run has ended.
    fn may_start(&self) -> Option<Duration> {
        let begins = |rate: Rate| rate.take(self.paid_to, Duration::ZERO).err();
        let at = self.rate.and_then(begins).unwrap_or_default();
        (self.running < self.concurrency).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::fixtures;

    fn limits(concurrency: Option<usize>, rate: Option<Rate>) -> Limits {
        let mut entry = fixtures::entry();
        let of = std::sync::Arc::get_mut(&mut entry).unwrap();
        (of.concurrency, of.rate) = (concurrency, rate);
        let mut limits = Limits::default();
        limits.queue(&entry).unwrap().extend([LaneId(1), LaneId(2), LaneId(3)]);
        limits
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_run_at_once() {
        let (mut limits, now) = (limits(Some(2), None), Instant::now());
        for lane in [1, 2] {
            assert_eq!(limits.next(false, now), Some(LaneId(lane)));
            limits.begin(0, now);
        }
        assert_eq!((limits.next(false, now), limits.next_start()), (None, None), "it waits for an end");
        limits.end(0);
        assert_eq!(limits.next(true, now), None, "none is transactional");
        assert_eq!(limits.next(false, now), Some(LaneId(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_begin_in_a_second() {
        let (mut limits, now) = (limits(None, Some(Rate::per_second(10))), Instant::now());
        assert_eq!(limits.next(false, now), Some(LaneId(1)));
        limits.begin(0, now);
        let later = now + Duration::from_millis(100);
        assert_eq!((limits.next(false, now), limits.next_start()), (None, Some(later)));
        assert_eq!(limits.next(false, later), Some(LaneId(2)));
    }
}
