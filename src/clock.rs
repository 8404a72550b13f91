//! The clock of the process, by which the lease is measured. If the system has a clock that counts suspended
//! time, it is used. If not, the wall clock shows a suspend.

use std::time::Duration;

/// A monotonic clock. Its zero is arbitrary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The clock of the system, one that counts suspended time if there is one.
    Boot,
    /// The clock of tokio, which tests can pause.
    Tokio(tokio::time::Instant),
    /// A clock and a wall clock, set by a test.
    #[cfg(test)]
    Set(&'static SetClock),
}

/// A clock, and a separate wall clock.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct SetClock {
    pub(crate) now: std::sync::Mutex<Duration>,
    pub(crate) wall: std::sync::Mutex<Duration>,
}

impl Clock {
    /// A clock that stops when tokio's is paused.
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

    /// The wall clock, since 1970, to 10 ms. A pausable clock is its own wall clock.
    pub(crate) fn wall(self) -> Duration {
        match self {
            Self::Boot => system::wall(),
            Self::Tokio(_) => self.now(),
            #[cfg(test)]
            Self::Set(set) => *set.wall.lock().unwrap(),
        }
    }
}

#[cfg(unix)]
mod system {
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// `CLOCK_BOOTTIME` counts suspended time. `CLOCK_MONOTONIC` does not on these systems.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    /// On macOS and OpenBSD, `CLOCK_MONOTONIC` counts suspended time.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    /// The time of the last tick, at most 10 ms ago. To read it is cheap, and this clock is read before each call.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const WALL: ClockId = ClockId::RealtimeCoarse;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const WALL: ClockId = ClockId::Realtime;

    pub(super) fn now() -> Duration {
        duration(clock_gettime(CLOCK))
    }

    pub(super) fn wall() -> Duration {
        duration(clock_gettime(WALL))
    }

    fn duration(time: Timespec) -> Duration {
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
    }
}

#[cfg(not(unix))]
mod system {
    use std::{
        sync::LazyLock,
        time::{Duration, Instant, SystemTime},
    };

    #[expect(clippy::disallowed_methods, reason = "there is no other; the wall clock tells of a suspend")]
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn now() -> Duration {
        ORIGIN.elapsed()
    }

    pub(super) fn wall() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
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
