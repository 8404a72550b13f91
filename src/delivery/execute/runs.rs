//! The runs of one task, each until it is reported.
//!
//! A task takes its runs one after another. A call that blocks its thread holds this task up; then another task goes on
//! with the same runs. So each run has a lock, which its flight holds to its end: a run that is not locked either has
//! ended or was not taken. Every way out leads to a report of each run: its end, a lapsed lease, a panic around a
//! flight, a cancellation before the first poll. No outcome is lost, and no lane stays marked as running.

use std::{
    mem::take,
    sync::{
        Arc, Mutex as SyncMutex, MutexGuard as SyncGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::{Mutex, MutexGuard, mpsc::UnboundedSender};

use super::{context::ExecContext, slot::Slot};
use crate::{
    delivery::outcome::{Report, Run},
    rules::pacing::Pace,
};

/// The runs of one task. Dropping them reports all that were not reported.
pub(super) struct Runs {
    /// Pushed before the task starts. Each run stays in its place until it is reported: copies of a run cost as
    /// much as a short handler.
    places: Vec<Mutex<Run>>,
    /// The place of the next run. Raised by `take_next`.
    next: AtomicUsize,
    /// The fence rows of the transactional runs that have not begun. Emptied by `lock`, one by one.
    slots: SyncMutex<Vec<Slot>>,
    /// The pace of these runs, for the report of their drop. Written by `end`.
    pace: SyncMutex<Option<Pace>>,
    /// What attempts share. Never changes.
    pub(super) context: Arc<ExecContext>,
    /// The sender for reports. Never changes.
    pub(super) done: UnboundedSender<Report>,
}

impl Runs {
    pub(super) fn new(context: Arc<ExecContext>, done: UnboundedSender<Report>) -> Self {
        Self {
            places: Vec::new(),
            next: AtomicUsize::new(0),
            slots: SyncMutex::default(),
            pace: SyncMutex::default(),
            context,
            done,
        }
    }

    /// Adds a run, with a fence row if it is transactional. `most` runs are expected in all.
    pub(super) fn push(&mut self, run: Run, slot: Option<Slot>, most: usize) {
        if self.places.is_empty() {
            self.places.reserve_exact(most);
        }
        self.places.push(Mutex::new(run));
        locked(&self.slots).extend(slot);
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The place of a run that no task has taken.
    pub(super) fn take_next(&self) -> Option<usize> {
        let at = self.next.fetch_add(1, Relaxed);
        (at < self.places.len()).then_some(at)
    }

    /// The run at this place for its flight, with a fence row if it is transactional. `None` if the run was reported.
    pub(super) fn lock(&self, at: usize) -> Option<(MutexGuard<'_, Run>, Option<Slot>)> {
        let run = self.places[at].try_lock().ok().filter(|run| run.goes_on)?;
        if !run.entry.form.is_transactional() {
            return Some((run, None));
        }
        // Without a fence row, these runs have been given up.
        let slot = locked(&self.slots).pop()?;
        Some((run, Some(slot)))
    }

    /// Whether there are runs that no task has taken.
    pub(super) fn has_next(&self) -> bool {
        self.next.load(Relaxed) < self.len()
    }

    /// A task has found no further run. What has ended is reported, by whatever task it was taken.
    pub(super) fn end(self: &Arc<Self>, pace: Option<Pace>) {
        match Arc::strong_count(self) {
            // Nobody else has a part in these runs: their drop reports them, at no cost per run.
            1 => *locked(&self.pace) = pace,
            _ => self.report_all(pace),
        }
    }

    /// No further run begins. What nobody flies is reported.
    pub(super) fn close(&self) {
        self.next.store(self.len(), Relaxed);
        self.report_all(None);
    }

    /// Reports the runs that nobody flies.
    fn report_all(&self, pace: Option<Pace>) {
        // The fence rows are free before the report, because the report lets the next transactional runs start.
        locked(&self.slots).clear();
        self.report((0..self.len()).filter_map(|at| self.take_back(at)).collect(), pace);
    }

    pub(super) fn report(&self, runs: Vec<Run>, pace: Option<Pace>) {
        // The send fails only if the dispatcher is gone; then this task is about to be cancelled.
        let _ = self.done.send(Report { runs, pace });
    }

    /// Takes a run out, if nobody flies it and it was not reported.
    fn take_back(&self, at: usize) -> Option<Run> {
        let mut run = self.places[at].try_lock().ok().filter(|run| run.goes_on)?;
        Some(run.take())
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        locked(&self.slots).clear();
        let places = take(&mut self.places).into_iter();
        let mut runs: Vec<Run> = places.map(Mutex::into_inner).filter(|run| run.goes_on).collect();
        runs.iter_mut().for_each(Run::end);
        if !runs.is_empty() {
            self.report(runs, locked(&self.pace).take());
        }
    }
}

/// A run that a task has taken. Dropping it reports the run.
pub(super) struct Taken {
    /// `None` once the report of all runs together will have this one.
    runs: Option<Arc<Runs>>,
    /// The place of the run.
    at: usize,
}

impl Taken {
    pub(super) fn new(runs: Arc<Runs>, at: usize) -> Self {
        Self { runs: Some(runs), at }
    }

    pub(super) fn place(&self) -> Option<(&Runs, usize)> {
        Some((self.runs.as_deref()?, self.at))
    }

    /// Leaves the run to the report of all runs together.
    pub(super) fn leave(mut self) -> Option<Arc<Runs>> {
        self.runs.take()
    }

    /// The run for a report, if nobody has reported it.
    pub(super) fn land(self) -> Option<Run> {
        let at = self.at;
        self.leave()?.take_back(at)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(runs) = &self.runs else { return };
        if let Some(run) = runs.take_back(self.at) {
            runs.report(vec![run], None);
        }
    }
}

pub(super) fn locked<T>(mutex: &SyncMutex<T>) -> SyncGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
