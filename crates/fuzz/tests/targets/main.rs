//! Each target on its seeds, and on inputs made from them.
//!
//! The inputs follow from a number, which a failure prints: `KEYLANE_FUZZ_SEED` sets another one.

#![allow(missing_docs)]

mod corpus;
mod mutation;

use std::panic::{AssertUnwindSafe, catch_unwind};

use keylane_fuzz::TARGETS;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

/// Inputs that are made for each target.
const INPUTS: u32 = 2_000;

fn seed() -> u64 {
    let given = std::env::var("KEYLANE_FUZZ_SEED");
    given.map_or(20_261, |text| text.parse().expect("KEYLANE_FUZZ_SEED is a whole number"))
}

/// The seeds, and then inputs that are made from them; a failing one is shrunk.
fn run(name: &str) {
    let target = keylane_fuzz::target(name).expect("a target");
    let seeds = corpus::seeds(name);
    for (file, input) in &seeds {
        let passed = catch_unwind(|| (target.run)(input)).is_ok();
        assert!(passed, "{name}: {file} fails");
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
    let inputs = mutation::inputs(seeds.into_iter().map(|(_, input)| input).collect());
    let checked = TestRunner::new_with_rng(config, random).run(&inputs.prop_map(Input), |Input(input)| {
        let passed = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        passed.map_err(|_| TestCaseError::fail("the promise of the target does not hold"))
    });
    if let Err(TestError::Fail(reason, Input(input))) = checked {
        panic!("{name}, KEYLANE_FUZZ_SEED={}: {reason}: b\"{}\"", seed(), input.escape_ascii());
    }
    checked.expect("inputs can be made");
}

struct Input(Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        const RUN: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

targets! { partition, identifiers, settings, headers, payload, classes, backoff, assignment, history }

#[test]
fn every_target_is_run() {
    assert!(TARGETS.iter().map(|target| target.name).eq(RUN.iter().copied()));
}
