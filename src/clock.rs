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

    /// The wall clock, since 1970. A clock that can be paused is its own wall clock.
    pub(crate) fn wall(self) -> Duration {
        match self {
            Self::Boot => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
            }
            Self::Tokio(_) => self.now(),
        }
    }
}
