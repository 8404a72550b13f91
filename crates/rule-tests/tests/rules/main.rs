//! Property tests of the rules: what must hold for every cluster, every policy and every clock.
//!
//! A failing case is printed in its smallest form, with a line `cc …` that repeats it. The line belongs into
//! the `.regressions` file beside the test: the case is then tried first.

mod assignment;
mod convergence;
mod lease;
mod lifecycle;
mod liveness;
mod pacing;
mod retry;
mod sharing;
mod table;
mod watermark;
mod witnesses;
mod world;

use std::time::Duration;

use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence},
};

/// 256 cases. Failing ones are kept in a file beside the test.
fn config() -> Config {
    Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::with_cases(256)
    }
}

/// A time in this range of milliseconds.
fn millis(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}
