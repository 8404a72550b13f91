//! The process clock. Trust in a lease is measured by it, so it must count suspended time.

use std::time::Duration;

/// A monotonic clock; its zero has no meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// `CLOCK_BOOTTIME`, which goes on while the machine is suspended (`Instant` stands still).
    Boot,
    /// tokio's clock, which tests can pause.
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// A clock that stands still when tokio's is paused.
    pub(crate) fn pausable() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    /// The time since the clock's zero.
    pub(crate) fn now(self) -> Duration {
        match self {
            Self::Boot => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
            }
            Self::Tokio(origin) => origin.elapsed(),
        }
    }

    /// The wall clock less this one, in microseconds; constant for a clock that can be paused.
    pub(crate) fn wall_offset_us(self) -> i64 {
        match self {
            Self::Boot => {
                let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                (wall.tv_sec - boot.tv_sec) * 1_000_000 + (wall.tv_nsec - boot.tv_nsec) / 1_000
            }
            Self::Tokio(_) => 0,
        }
    }
}
