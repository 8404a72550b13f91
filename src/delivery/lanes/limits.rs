//! Handlers with a limit on their rate or their concurrency, and those that have had their share of all calls. Their
//! lanes wait in queues of their own, so that no other lane waits behind them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    delivery::{
        shares::{Shares, Vacancy},
        work::LaneId,
    },
    handler::Entry,
    rules::rate::Rate,
};

/// A handler whose lanes wait by themselves.
struct Limited {
    /// The most runs under way. Never changes.
    concurrency: usize,
    /// The most calls per second. Never changes.
    rate: Option<Rate>,
    /// Whether the handler is transactional. Never changes.
    transactional: bool,
    /// Lanes that are ready and wait only for the limit or the share. Pushed when a lane becomes ready, popped by `next`.
    waiting: VecDeque<LaneId>,
    /// Up to when the rate has granted calls, since `Limits::start`. Moved on by `begin`.
    paid_to: Duration,
}

/// The handlers with a limit that have had a ready lane, and those that have had their share.
#[derive(Default)]
pub(super) struct Limits {
    /// The zero of all times here: when a lane was first asked for. Set once, by `next` or `begin`.
    start: Option<Instant>,
    /// By the number of the handler. Added by `queue` and `queue_apart`.
    limited: BTreeMap<usize, Limited>,
}

impl Limits {
    /// The queue of ready lanes of this handler, or `None` if its lanes do not wait by themselves.
    pub(super) fn queue(&mut self, entry: &Entry) -> Option<&mut VecDeque<LaneId>> {
        let is_limited = entry.concurrency.is_some() || entry.rate.is_some();
        let is_apart = is_limited || self.limited.contains_key(&entry.number);
        is_apart.then(|| self.queue_apart(entry))
    }

    /// The queue of a handler whose lanes wait by themselves from now on.
    pub(super) fn queue_apart(&mut self, entry: &Entry) -> &mut VecDeque<LaneId> {
        let new = || Limited {
            concurrency: entry.concurrency.unwrap_or(usize::MAX),
            rate: entry.rate,
            transactional: entry.form.is_transactional(),
            waiting: VecDeque::new(),
            paid_to: Duration::ZERO,
        };
        &mut self.limited.entry(entry.number).or_insert_with(new).waiting
    }

    /// The next lane that the limits and the share of its handler let run now.
    pub(super) fn next(&mut self, shares: &Shares, vacancy: Vacancy, now: Instant) -> Option<LaneId> {
        let now = now - *self.start.get_or_insert(now);
        let of_kind = |limited: &Limited| limited.transactional == vacancy.transactional;
        let is_open = |number: usize, limited: &Limited| {
            let may_start = limited.may_start(shares.runs(number)).is_some_and(|at| at <= now);
            may_start && shares.longest_run(number, vacancy) > 0
        };
        let waiting = self.limited.iter_mut().filter(|(_, limited)| !limited.waiting.is_empty());
        let mut open = waiting.filter(|(number, limited)| of_kind(limited) && is_open(**number, limited));
        open.next()?.1.waiting.pop_front()
    }

    /// A run of this handler begins.
    pub(super) fn begin(&mut self, handler: usize, now: Instant) {
        let now = now - *self.start.get_or_insert(now);
        let Some(limited) = self.limited.get_mut(&handler) else { return };
        if let Some(Ok(paid_to)) = limited.rate.map(|rate| rate.take(limited.paid_to, now)) {
            limited.paid_to = paid_to;
        }
    }

    /// When the next waiting lane may run, if only its rate delays it.
    pub(super) fn next_start(&self, shares: &Shares) -> Option<Instant> {
        let waiting = self.limited.iter().filter(|(_, limited)| !limited.waiting.is_empty());
        let starts = waiting.filter_map(|(number, limited)| limited.may_start(shares.runs(*number)));
        Some(self.start? + starts.min()?)
    }
}

impl Limited {
    /// When a run may start beside `running` others. `None`: not before one of them has ended.
    fn may_start(&self, running: usize) -> Option<Duration> {
        let begins = |rate: Rate| rate.take(self.paid_to, Duration::ZERO).err();
        let at = self.rate.and_then(begins).unwrap_or_default();
        (running < self.concurrency).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            fixtures::{self, PLAIN, TRANSACTIONAL},
            outcome::Run,
        },
        ownership::Ownership,
    };

    fn limits(concurrency: Option<usize>, rate: Option<Rate>) -> Limits {
        let mut entry = fixtures::entry();
        let of = std::sync::Arc::get_mut(&mut entry).unwrap();
        (of.concurrency, of.rate) = (concurrency, rate);
        let mut limits = Limits::default();
        limits.queue(&entry).unwrap().extend([LaneId(1), LaneId(2), LaneId(3)]);
        limits
    }

    /// A run of the only handler, which is reported as a whole.
    fn run(ownership: &Ownership) -> Run {
        Run { goes_on: false, ..fixtures::run(ownership, 1) }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_run_at_once() {
        let (mut limits, now) = (limits(Some(2), None), Instant::now());
        let (mut shares, ownership) = (fixtures::shares(), fixtures::owning_all());
        for lane in [1, 2] {
            assert_eq!(limits.next(&shares, PLAIN, now), Some(LaneId(lane)));
            limits.begin(0, now);
            shares.begin(&run(&ownership));
        }
        let next = (limits.next(&shares, PLAIN, now), limits.next_start(&shares));
        assert_eq!(next, (None, None), "it waits for an end");
        shares.land(&run(&ownership));
        assert_eq!(limits.next(&shares, TRANSACTIONAL, now), None, "none is transactional");
        assert_eq!(limits.next(&shares, PLAIN, now), Some(LaneId(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_begin_in_a_second() {
        let (mut limits, now) = (limits(None, Some(Rate::per_second(10))), Instant::now());
        let shares = fixtures::shares();
        assert_eq!(limits.next(&shares, PLAIN, now), Some(LaneId(1)));
        limits.begin(0, now);
        let later = now + Duration::from_millis(100);
        assert_eq!((limits.next(&shares, PLAIN, now), limits.next_start(&shares)), (None, Some(later)));
        assert_eq!(limits.next(&shares, PLAIN, later), Some(LaneId(2)));
    }
}
