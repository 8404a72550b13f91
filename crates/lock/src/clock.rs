//! The clock that measures the trust in a lease. It counts suspended time where the system has such a clock.

use std::time::Duration;

pub(crate) use system::now;

#[cfg(unix)]
mod system {
    use super::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// `CLOCK_MONOTONIC` stands still during a suspend here.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    /// On macOS and OpenBSD it counts suspended time.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    /// The time since the clock's zero, which has no meaning.
    pub(crate) fn now() -> Duration {
        let time = clock_gettime(CLOCK);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
    }
}

#[cfg(not(unix))]
mod system {
    use super::Duration;
    use std::{sync::LazyLock, time::Instant};

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// The time since the first call.
    pub(crate) fn now() -> Duration {
        ORIGIN.elapsed()
    }
}
