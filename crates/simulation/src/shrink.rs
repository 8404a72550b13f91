//! The faults of a plan that a failure needs.

use crate::{Plan, play};

/// The fewest faults with which the same invariant is violated, by their indices in the plan. Leaves out
/// halves, then quarters, and so on to single faults.
#[must_use]
pub fn shrink(plan: &Plan) -> Vec<usize> {
    let mut needed: Vec<usize> = (0..plan.faults.len()).collect();
    let Err(wanted) = play(plan, false, false).verdict else { return needed };
    let fails = |places: &[usize]| {
        let verdict = play(&plan.only(places), false, false).verdict;
        verdict.is_err_and(|violation| violation.invariant == wanted.invariant)
    };
    let mut share = needed.len();
    while share > 0 {
        let mut from = 0;
        while from < needed.len() {
            let to = (from + share).min(needed.len());
            let fewer = [&needed[..from], &needed[to..]].concat();
            if fails(&fewer) {
                needed = fewer;
            } else {
                from = to;
            }
        }
        share /= 2;
    }
    needed
}
