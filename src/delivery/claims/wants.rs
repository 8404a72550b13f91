//! What this instance wants to claim next.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    delivery::{ERROR_PAUSE, timers::Timers},
    instance::InstanceId,
    partition::{PARTITION_COUNT, Partition},
    rules::claim::{Found, Progress},
    store::{Handlers, Source},
};

/// One in this many polls searches for suspects. During a pass over the ids it also reads the index.
const POLLS_PER_SEARCH: u32 = 5;

/// What to claim next.
pub(in crate::delivery) struct Wanted {
    pub(in crate::delivery) source: Source,
    pub(in crate::delivery) handlers: Handlers,
    pub(in crate::delivery) limit: usize,
}

/// What is wanted, and when.
pub(super) struct Wants {
    /// The times of polls and retries.
    timers: Timers,
    /// How far claims of pending records have come. `None` if none are wanted. Moved on by `want` and `found`.
    progress: Option<Progress>,
    /// Whether due records are wanted. Set by `fire`, `want_all` and `found`, cleared by `next`.
    due: bool,
    /// Whether a suspect is wanted. Set by `fire`, `want_suspect` and `failed`, cleared by `next`.
    suspect: bool,
    /// Whether a claim is under way. Set by `next`, cleared by `found` and `failed`.
    claiming: bool,
    /// Whether records were wanted while a claim was under way. Set by `want`, cleared by `found`.
    woken: bool,
    /// Whether the next claim of pending records reads the index. Set by `fire`, cleared by `next`.
    by_index: bool,
}

impl Wants {
    pub(super) fn new(me: InstanceId, poll_interval: Duration, now: Instant) -> Self {
        // Instances that begin at different partitions do not read past each other's locks.
        let first = me.as_uuid().as_u128() % PARTITION_COUNT as u128;
        Self {
            timers: Timers::new(me, poll_interval, now),
            progress: Partition::new(first as i64).map(Progress::new),
            due: false,
            suspect: false,
            claiming: false,
            woken: false,
            by_index: false,
        }
    }

    /// There may be pending records.
    pub(super) fn want(&mut self) {
        // Records that were committed after the claim under way was sent are not in its answer.
        self.woken |= self.claiming;
        self.progress.get_or_insert(Progress::new(Partition::FIRST));
    }

    /// There may be pending and due records.
    pub(super) fn want_all(&mut self) {
        self.due = true;
        self.want();
    }

    /// There may be another suspect.
    pub(super) fn want_suspect(&mut self) {
        self.suspect = true;
    }

    /// A record is due after this pause.
    pub(super) fn due_in(&mut self, pause: Duration, now: Instant) {
        self.timers.due_in(pause, now);
    }

    /// Whether a claim may be made now.
    pub(super) fn is_any(&self, now: Instant) -> bool {
        self.timers.may_fetch(now) && self.is_wanted()
    }

    fn is_wanted(&self) -> bool {
        self.due || self.suspect || self.progress.is_some()
    }

    /// What to claim next. A suspect is claimed only if none is held.
    pub(super) fn next(&mut self, holds_suspect: bool) -> Option<Source> {
        let due = std::mem::take(&mut self.due).then_some(Source::Due);
        let suspect = || (std::mem::take(&mut self.suspect) && !holds_suspect).then_some(Source::Suspect);
        let source = due.or_else(suspect);
        let source = source.or_else(|| Some(Source::Pending(self.progress?.next(self.by_index))))?;
        self.by_index &= !matches!(source, Source::Pending(_));
        self.claiming = true;
        Some(source)
    }

    /// A claim has failed: the next one waits.
    pub(super) fn failed(&mut self, source: Source, now: Instant) {
        self.claiming = false;
        self.due |= source == Source::Due;
        self.suspect |= source == Source::Suspect;
        self.timers.pause(ERROR_PAUSE, now);
    }

    /// What a claim has found.
    pub(super) fn found(&mut self, source: Source, found: Found) {
        self.claiming = false;
        match source {
            Source::Due => self.due |= found.is_full,
            Source::Suspect => {}
            Source::Pending(reading) => {
                let wanted = std::mem::take(&mut self.woken).then_some(Progress::new(Partition::FIRST));
                self.progress = self.progress.and_then(|progress| progress.after(reading, found)).or(wanted);
            }
        }
    }

    /// When to call `fire`.
    pub(super) fn next_timer(&self, now: Instant) -> Instant {
        self.timers.next(self.is_wanted(), now)
    }

    /// Takes the timers whose time has come.
    pub(super) fn fire(&mut self, now: Instant) {
        let fired = self.timers.fire(now);
        self.due |= fired.due;
        if let Some(poll) = fired.poll {
            let searches = poll % POLLS_PER_SEARCH == 1;
            self.by_index |= searches;
            self.suspect |= searches;
            self.want();
        }
    }
}
