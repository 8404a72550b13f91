//! Valid histories pass, and together they reach all states that the judge counts.

use keylane_checker::{Event, Invariant, Judge, Report, Violation};
use proptest::prelude::*;

use crate::model;

pub(crate) fn judge(history: &[Event]) -> Result<Report, Violation> {
    let mut judge = Judge::new(model::expect());
    for event in history {
        judge.take(event)?;
    }
    judge.finish()
}

/// The choices of a seed.
pub(crate) fn choices(seed: u64, count: usize) -> Vec<u16> {
    let mut dice = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| dice.u16(..)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn valid_histories_pass(choices in prop::collection::vec(any::<u16>(), 0..2_000)) {
        let history = model::history(choices);
        if let Err(violation) = judge(&history) {
            return Err(TestCaseError::fail(violation.to_string()));
        }
    }
}

#[test]
fn valid_histories_reach_every_invariant_and_every_turn() {
    let mut sum = Report::default();
    for seed in 0..60 {
        sum.add(&judge(&model::history(choices(seed, 3_000))).expect("valid"));
    }
    let never: Vec<Invariant> =
        Invariant::ALL.into_iter().filter(|invariant| !sum.judged.contains_key(invariant)).collect();
    assert_eq!(never, [], "not judged, in {:?}", sum.judged);
    let turns = [
        "batch",
        "crash",
        "crash in a call",
        "eviction",
        "failed",
        "failover",
        "fallback",
        "forgotten commit",
        "held",
        "late commit with a lower id",
        "movement",
        "overlap",
        "repair",
        "repeat",
        "retry",
        "rollback",
        "savepoint undone",
        "takeover",
        "tea",
        "unknown commit",
        "unknown commit that happened",
    ];
    sum.require(turns).expect("every turn");
    assert!(sum.require(["a turn that there is not"]).is_err());
}
