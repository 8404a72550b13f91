//! The time of the world, and the time that a node reads in its turn.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The rate of a true clock, in thousandths.
pub(crate) const TRUE: u32 = 1000;

/// The one true clock, of the database and of the history. Nodes have separate clocks.
#[derive(Debug)]
pub(crate) struct Time {
    base: Instant,
    /// The nanoseconds from the begin of the world to the begin of the turn.
    elapsed: AtomicU64,
    /// The node's clock at the begin of its turn, and the rate of the clock.
    turn: Mutex<Option<(Instant, u32)>>,
    /// The latest time that was read. No later read gets an earlier time.
    told: AtomicU64,
}

impl Time {
    pub(crate) fn new() -> Self {
        Self {
            base: Instant::now(),
            elapsed: AtomicU64::new(0),
            turn: Mutex::new(None),
            told: AtomicU64::new(0),
        }
    }

    /// The nanoseconds since the begin of the world.
    pub(crate) fn now(&self) -> u64 {
        let turn = *self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let of_turn = turn.map_or(Duration::ZERO, |(began, rate)| began.elapsed() * TRUE / rate);
        let now = self.elapsed.load(Relaxed) + of_turn.as_nanos() as u64;
        now.max(self.told.fetch_max(now, Relaxed))
    }

    /// The clock of the database.
    pub(crate) fn of_database(&self) -> Instant {
        self.base + Duration::from_nanos(self.now())
    }

    /// Begins the turn of a node. Called on the node's runtime.
    pub(crate) fn turn_begins(&self, rate: u32) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), rate));
    }

    pub(crate) fn turn_ends(&self) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Lets time pass after all nodes have had their turn.
    pub(crate) fn pass(&self, time: Duration) {
        self.elapsed.fetch_add(time.as_nanos() as u64, Relaxed);
    }
}
