//! Targets of the fuzzer. Each takes any bytes, and panics if a promise does not hold for them.
//!
//! `cargo test` runs each target on the seeds in `corpus/` and on 2,000 inputs made from them. `dev/fuzz` runs
//! libFuzzer, which is guided by coverage.

mod assignment;
mod backoff;
mod classes;
mod headers;
mod history;
mod identifiers;
mod partition;
mod payload;
mod record;
mod settings;

/// A part of the library, and what must hold for any input of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics if the promise does not hold for this input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 9] = [
    Target { name: "partition", run: partition::run },
    Target { name: "identifiers", run: identifiers::run },
    Target { name: "settings", run: settings::run },
    Target { name: "headers", run: headers::run },
    Target { name: "payload", run: payload::run },
    Target { name: "classes", run: classes::run },
    Target { name: "backoff", run: backoff::run },
    Target { name: "assignment", run: assignment::run },
    Target { name: "history", run: history::run },
];

/// The target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
