//! The time of the world, and how it looks from a node whose turn it is.

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

/// The one true clock: that of the database and of the history. Nodes have clocks of their own.
#[derive(Debug)]
pub(crate) struct Time {
    base: Instant,
    /// Nanoseconds from the begin of the world to the begin of the turn.
    elapsed: AtomicU64,
    /// The node's clock when its turn began, and the clock's rate.
    turn: Mutex<Option<(Instant, u32)>>,
    /// The latest time that anybody was told: nobody is told an earlier one.
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

    /// Nanoseconds since the begin of the world.
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

    /// The turn of a node begins. Called on its runtime.
    pub(crate) fn turn_begins(&self, rate: u32) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), rate));
    }

    pub(crate) fn turn_ends(&self) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// All nodes have had their turn.
    pub(crate) fn pass(&self, time: Duration) {
        self.elapsed.fetch_add(time.as_nanos() as u64, Relaxed);
    }
}
