//! Each mutation of a valid history is caught under its number.

mod changes;
mod cluster;
mod rows;
mod view;

use std::collections::BTreeSet;

use keylane_checker::{Event, Invariant, What};

use self::view::View;
use crate::{
    model,
    valid::{choices, judge},
};

/// Changes a history at one place, where the change makes it wrong. Returns one history per such place.
type Mutation = fn(&View<'_>) -> Vec<Vec<Event>>;

const TABLE: [(&str, Invariant, Mutation); 44] = [
    ("the last record of a lane has no end", Invariant::NoLoss, rows::no_end),
    ("a committed row is not there", Invariant::NoLoss, rows::no_row),
    ("what was seen is rolled back", Invariant::NoGhost, rows::rolled_back),
    ("a call has another event", Invariant::NoGhost, rows::other_event),
    ("a row is there twice", Invariant::NoGhost, rows::twice_stored),
    ("a row has another key", Invariant::NoGhost, rows::other_key),
    ("a row is there before its commit", Invariant::NoGhost, rows::early_row),
    ("an event was never scheduled", Invariant::NoGhost, rows::not_scheduled),
    ("an event was refused", Invariant::NoGhost, rows::refused),
    ("a call never began", Invariant::NoGhost, rows::no_begin),
    ("a call did not succeed", Invariant::AtLeastOnce, rows::no_success),
    ("a record has two ends", Invariant::AtLeastOnce, rows::two_ends),
    ("a failed record goes on by itself", Invariant::AtLeastOnce, rows::no_person),
    ("first calls swap", Invariant::FirstAttempts, rows::swapped_calls),
    ("records of a batch swap", Invariant::FirstAttempts, rows::swapped_batch),
    ("a call begins within another", Invariant::StopOnFailure, rows::nested_call),
    ("a failure stops nothing", Invariant::StopOnFailure, rows::passed_failure),
    ("ends swap", Invariant::Outcomes, rows::swapped_ends),
    ("a replay leaves a record out", Invariant::Replays, rows::no_replay),
    ("what has its end is called", Invariant::Replays, rows::call_after_end),
    ("a claim skips a generation", Invariant::OneOwner, cluster::skipped_generation),
    ("a claim is there twice", Invariant::OneOwner, cluster::twice_claimed),
    ("a claim is missing", Invariant::OneOwner, cluster::no_claim),
    ("a release is missing", Invariant::OneOwner, cluster::no_release),
    ("a call has a generation to come", Invariant::OneOwner, cluster::wrong_generation),
    ("another instance calls", Invariant::OneOwner, cluster::wrong_caller),
    ("a lease ends before a call", Invariant::Lease, cluster::short_lease),
    ("an overlap has no fault", Invariant::Lease, cluster::no_fault),
    ("a former owner calls", Invariant::Lease, cluster::former_owner),
    ("a dead instance writes", Invariant::Fence, cluster::dead_writer),
    ("another instance writes", Invariant::Fence, cluster::wrong_writer),
    ("nobody takes over", Invariant::Takeover, cluster::no_takeover),
    ("shares are unequal", Invariant::Balance, cluster::unequal),
    ("a partition moves twice", Invariant::Movement, cluster::twice_moved),
    ("a partition moves for nothing", Invariant::Movement, cluster::moved_for_nothing),
    ("the head of a lane is not called", Invariant::Starvation, rows::starved),
    ("an effect is there twice", Invariant::Effects, changes::twice_effect),
    ("an effect is missing", Invariant::Effects, changes::no_effect),
    ("a call ends after a crash", Invariant::Crash, cluster::ends_after_crash),
    ("a call counts one attempt more", Invariant::Attempts, changes::more_attempts_called),
    ("a row counts one attempt more", Invariant::Attempts, changes::more_attempts_written),
    ("a retry is early", Invariant::RetryTiming, changes::early_retry),
    ("a sample is over its bound", Invariant::Bounds, changes::over_bound),
    ("a log line has the canary", Invariant::Secrets, changes::canary),
];

/// The same for a mutation that has a place in every history.
const AT_THE_END: [(&str, Invariant, Mutation); 4] = [
    ("an effect has no completion", Invariant::Effects, changes::ghost_effect),
    ("an instance stays", Invariant::Quiet, changes::stays),
    ("a session stays", Invariant::Quiet, changes::remains),
    ("a turn is never taken", Invariant::Sometimes, changes::never),
];

/// How often each mutation must be seen, and in how many histories a place for it is searched.
const SEEN: usize = 8;
const HISTORIES: u64 = 1_500;

#[test]
fn each_mutation_is_caught_under_its_number() {
    let histories: Vec<Vec<Event>> = (0..HISTORIES).map(|seed| model::history(choices(seed, 700))).collect();
    let failed_over =
        |history: &Vec<Event>| history.iter().any(|event| matches!(event.what, What::FailedOver { .. }));
    let histories: Vec<_> = histories.into_iter().filter(|history| !failed_over(history)).collect();
    let mut missed = Vec::new();
    for (name, invariant, mutation) in TABLE.into_iter().chain(AT_THE_END) {
        let mut seen = 0;
        for history in &histories {
            for mutated in mutation(&View::new(history)).into_iter().take(3) {
                seen += 1;
                match judge(&mutated) {
                    Err(violation) if violation.invariant == invariant => {
                        assert!(violation.excerpt.len() <= 40, "{name}: {violation}");
                    }
                    Err(other) => missed.push(format!("{name}: {other}")),
                    Ok(_) => missed.push(format!("{name}: not caught")),
                }
            }
            if seen >= SEEN {
                break;
            }
        }
        println!("{:2} {name}: {seen}", invariant.number());
        if seen < 3 {
            missed.push(format!("{name}: only {seen} places found"));
        }
        missed.dedup();
    }
    assert!(
        missed.is_empty(),
        "{} are not caught as they should be:\n{}",
        missed.len(),
        missed[..missed.len().min(8)].join("\n")
    );
}

#[test]
fn every_invariant_has_a_mutation() {
    let covered: BTreeSet<Invariant> =
        TABLE.iter().chain(&AT_THE_END).map(|(_, invariant, _)| *invariant).collect();
    assert_eq!(covered.into_iter().collect::<Vec<_>>(), Invariant::ALL);
}
