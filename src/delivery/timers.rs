//! The times at which a fetch is due by itself.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::{delivery::roll::roll, instance::InstanceId, rules::pacing};

/// Added to the time of a retry, so that the database's clock has reached that time too.
const DUE_SLACK: Duration = Duration::from_millis(5);
/// The most times of retries that are kept. Records beyond wait for a poll.
const DUE_TIMES: usize = 1_000;

/// The times of polls and retries.
pub(in crate::delivery) struct Timers {
    /// The seed of the jitter: spreads the polls of the instances. Never changes.
    seed: i64,
    /// Never changes.
    poll_interval: Duration,
    /// When the next poll is. Moved on by each poll.
    next_poll: Instant,
    /// The number of polls so far. Counted by `fire`.
    polls: u32,
    /// When retries of this instance are due. Added when a retry is durable, removed by `fire`.
    due: BTreeSet<Instant>,
    /// No fetch begins before this time. Written by `pause` after a failure.
    not_before: Instant,
}

/// What has come due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::delivery) struct Fired {
    /// Whether a record may be due.
    pub(in crate::delivery) due: bool,
    /// The number of polls so far, if a poll has come due.
    pub(in crate::delivery) poll: Option<u32>,
}

impl Timers {
    pub(in crate::delivery) fn new(instance: InstanceId, poll_interval: Duration, now: Instant) -> Self {
        let seed = instance.as_uuid().as_u128() as i64;
        Self { seed, poll_interval, next_poll: now, polls: 0, due: BTreeSet::new(), not_before: now }
    }

    /// A record is due after this pause.
    pub(in crate::delivery) fn due_in(&mut self, pause: Duration, now: Instant) {
        self.due.insert(now + pause + DUE_SLACK);
        if self.due.len() > DUE_TIMES {
            self.due.pop_last();
        }
    }

    /// No fetch begins for this long.
    pub(in crate::delivery) fn pause(&mut self, pause: Duration, now: Instant) {
        self.not_before = now + pause;
    }

    pub(in crate::delivery) fn may_fetch(&self, now: Instant) -> bool {
        now >= self.not_before
    }

    /// When to call `fire`. `wanted`: a fetch waits for the end of a pause.
    pub(in crate::delivery) fn next(&self, wanted: bool, now: Instant) -> Instant {
        let pause = (wanted && self.not_before > now).then_some(self.not_before);
        [self.due.first().copied(), pause].into_iter().flatten().fold(self.next_poll, Instant::min)
    }

    /// Takes all times up to `now`.
    pub(in crate::delivery) fn fire(&mut self, now: Instant) -> Fired {
        let mut fired = Fired::default();
        while self.due.first().is_some_and(|due| *due <= now) {
            self.due.pop_first();
            fired.due = true;
        }
        if self.next_poll <= now {
            self.polls += 1;
            self.next_poll = now + pacing::pause(self.poll_interval, roll(self.seed, self.polls));
            fired.due = true;
            fired.poll = Some(self.polls);
        }
        fired
    }
}
