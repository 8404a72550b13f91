//! Signs of health, written by the wings and read by the health of the workers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{partition::PartitionSet, targets::Targets};

/// The signs of health of one session. The wings write them, [`Running::health`](crate::Running::health)
/// reads them.
#[derive(Clone, Default)]
pub(crate) struct Vitals(Arc<Shared>);

#[derive(Default)]
struct Shared {
    listen_state: ListenState,
    targets: Targets,
    signs: Mutex<Signs>,
}

#[derive(Default)]
struct Signs {
    /// The time of the first failed fetch since the last one with a reply. Set by `fetch_failed`, cleared by
    /// `fetch_answered`.
    fetches_fail_since: Option<Instant>,
    /// The begin of the settle under way. Set by `settle_begins`, cleared by `settle_ends`.
    settles_since: Option<Instant>,
    /// The partitions without a live owner in the last view. Set by `set_unowned`.
    unowned: PartitionSet,
    /// The partitions without a live owner in the view before it. Set by `set_unowned`.
    unowned_before: PartitionSet,
}

impl Vitals {
    /// Whether this process listens to notifications of commits.
    pub(crate) fn listen_state(&self) -> &ListenState {
        &self.0.listen_state
    }

    /// The targets of handlers that are away.
    pub(crate) fn targets(&self) -> &Targets {
        &self.0.targets
    }

    pub(crate) fn fetch_answered(&self) {
        self.signs().fetches_fail_since = None;
    }

    pub(crate) fn fetch_failed(&self) {
        self.signs().fetches_fail_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn settle_begins(&self) {
        self.signs().settles_since = Some(Instant::now());
    }

    pub(crate) fn settle_ends(&self) {
        self.signs().settles_since = None;
    }

    /// Sets the partitions without a live owner, from a new view.
    pub(crate) fn set_unowned(&self, unowned: PartitionSet) {
        let mut signs = self.signs();
        signs.unowned_before = std::mem::replace(&mut signs.unowned, unowned);
    }

    /// The time since fetches began to fail, or `None` if the last one got a reply.
    pub(crate) fn fetches_fail_for(&self) -> Option<Duration> {
        self.signs().fetches_fail_since.map(|since| since.elapsed())
    }

    /// The time since the settle under way began, or `None` if there is none.
    pub(crate) fn settles_for(&self) -> Option<Duration> {
        self.signs().settles_since.map(|since| since.elapsed())
    }

    /// The partitions without a live owner in two consecutive views. In a handover, a partition is unowned in
    /// at most one.
    pub(crate) fn unowned(&self) -> PartitionSet {
        let signs = self.signs();
        signs.unowned.iter().filter(|partition| signs.unowned_before.contains(*partition)).collect()
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.0.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this process listens to notifications of commits.
#[derive(Clone, Default)]
pub(crate) struct ListenState(Arc<Flags>);

#[derive(Default)]
struct Flags {
    listening: AtomicBool,
    /// Whether a try to listen has failed, and none has succeeded since. Set by `set`.
    absent: AtomicBool,
}

impl ListenState {
    pub(crate) fn is_listening(&self) -> bool {
        self.0.listening.load(Relaxed)
    }

    /// Whether a try to listen has failed, and none has succeeded since.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.absent.load(Relaxed)
    }

    pub(crate) fn set(&self, listens: bool) {
        self.0.listening.store(listens, Relaxed);
        self.0.absent.store(!listens, Relaxed);
    }
}
