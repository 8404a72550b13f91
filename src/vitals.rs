//! What the wings note of their own health, for whoever asks how the workers are.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::partition::PartitionSet;

/// Signs of life of one session. The wings write, [`Running::health`](crate::Running::health) reads.
#[derive(Clone, Default)]
pub(crate) struct Vitals(Arc<Shared>);

#[derive(Default)]
struct Shared {
    listen_state: ListenState,
    signs: Mutex<Signs>,
}

#[derive(Default)]
struct Signs {
    /// When the first fetch failed since the last one that was answered.
    fetches_fail_since: Option<Instant>,
    /// When the settle began that is under way.
    settles_since: Option<Instant>,
    /// What nobody owned in the last view.
    unowned: PartitionSet,
    /// What nobody owned in the view before it.
    unowned_before: PartitionSet,
}

impl Vitals {
    /// Whether this process is told of the commits of others.
    pub(crate) fn listen_state(&self) -> &ListenState {
        &self.0.listen_state
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

    /// What nobody owns in the next view.
    pub(crate) fn note_unowned(&self, unowned: PartitionSet) {
        let mut signs = self.signs();
        signs.unowned_before = std::mem::replace(&mut signs.unowned, unowned);
    }

    /// For how long no fetch has been answered though fetches were tried.
    pub(crate) fn fetches_fail_for(&self) -> Option<Duration> {
        self.signs().fetches_fail_since.map(|since| since.elapsed())
    }

    /// For how long the settle under way lasts.
    pub(crate) fn settles_for(&self) -> Option<Duration> {
        self.signs().settles_since.map(|since| since.elapsed())
    }

    /// What nobody owned in two views, one after the other: in a handover it is one at most.
    pub(crate) fn unowned(&self) -> PartitionSet {
        let signs = self.signs();
        signs.unowned.iter().filter(|partition| signs.unowned_before.contains(*partition)).collect()
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.0.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this process is told of the commits of others.
#[derive(Clone, Default)]
pub(crate) struct ListenState(Arc<Flags>);

#[derive(Default)]
struct Flags {
    listening: AtomicBool,
    /// A try to listen has failed, and none has succeeded since.
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
