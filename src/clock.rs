//! The process clock. Trust in a lease is measured by it, so it counts suspended time where the system
//! has such a clock; where it has none, the wall clock beside it tells of a suspend.

use std::time::{Duration, SystemTime};

/// A monotonic clock; its zero has no meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's clock, which goes on while the machine is suspended if there is one that does.
    Boot,
    /// tokio's clock, which tests can pause.
    Tokio(tokio::time::Instant),
    /// Both clocks as a test sets them.
    #[cfg(test)]
    Set(&'static SetClock),
}

/// A clock, and a wall clock beside it that goes its own way.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct SetClock {
    pub(crate) now: std::sync::Mutex<Duration>,
    pub(crate) wall: std::sync::Mutex<Duration>,
}

impl Clock {
    /// A clock that stands still when tokio's is paused.
    pub(crate) fn pausable() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    /// The time since the clock's zero.
    pub(crate) fn now(self) -> Duration {
        match self {
            Self::Boot => system::now(),
            Self::Tokio(origin) => origin.elapsed(),
            #[cfg(test)]
            Self::Set(set) => *set.now.lock().unwrap(),
        }
    }

    /// The wall clock, since 1970. A clock that can be paused is its own wall clock.
    pub(crate) fn wall(self) -> Duration {
        match self {
            Self::Boot => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            Self::Tokio(_) => self.now(),
            #[cfg(test)]
            Self::Set(set) => *set.wall.lock().unwrap(),
        }
    }
}

#[cfg(unix)]
mod system {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// The one that counts suspended time; `CLOCK_MONOTONIC` stands still during a suspend here.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    /// On macOS and OpenBSD it counts suspended time.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    pub(super) fn now() -> Duration {
        let time = clock_gettime(CLOCK);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
    }
}

#[cfg(not(unix))]
mod system {
    use std::{
        sync::LazyLock,
        time::{Duration, Instant},
    };

    #[expect(clippy::disallowed_methods, reason = "there is no other; the wall clock tells of a suspend")]
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn now() -> Duration {
        ORIGIN.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_clock_goes_on_and_the_wall_clock_is_of_this_century() {
        let clock = Clock::Boot;
        let before = clock.now();
        assert!((0..1_000).all(|_| clock.now() >= before));
        assert!(clock.wall() > Duration::from_secs(1_700_000_000));
    }
}
