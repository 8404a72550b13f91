//! How handlers share the calls and the memory of an instance.

use keylane::rules::sharing::{may_call, run_records};
use proptest::prelude::*;

/// What each of the handlers has after each has taken all that it may, one after another.
fn greedy(all: usize, handlers: usize, mut next: impl FnMut(usize, usize) -> usize) -> Vec<usize> {
    let mut taken = vec![0; handlers];
    for handler in 0..handlers {
        loop {
            let free = all - taken.iter().sum::<usize>();
            let more = next(taken[handler], free).min(free);
            if more == 0 {
                break;
            }
            taken[handler] += more;
        }
    }
    taken
}

proptest! {
    #![proptest_config(super::config())]

    /// Handlers that stand still leave calls to those that come later.
    #[test]
    fn a_handler_without_calls_may_begin_one_whatever_the_others_have(calls in 2..100_000_usize, greedy_ones in 1..4_usize) {
        prop_assume!(calls >= 1 << (2 * greedy_ones - 1));
        let taken = greedy(calls, greedy_ones, |running, free| usize::from(may_call(running, free)));
        let free = calls - taken.iter().sum::<usize>();
        prop_assert!(may_call(0, free), "{taken:?} of {calls}");
    }

    /// No call is left over for no reason: of many calls one handler may have nearly three quarters.
    #[test]
    fn one_handler_gets_three_quarters(calls in 8..100_000_usize) {
        let taken = greedy(calls, 1, |running, free| usize::from(may_call(running, free)));
        prop_assert!(taken[0] * 4 <= calls * 3 && (taken[0] + 2) * 4 >= calls * 3, "{taken:?} of {calls}");
    }

    #[test]
    fn runs_leave_memory_to_those_that_come_later(places in 8..100_000_usize, greedy_ones in 1..4_usize) {
        prop_assume!(places >= 1 << (2 * greedy_ones + 1));
        let taken = greedy(places, greedy_ones, run_records);
        let free = places - taken.iter().sum::<usize>();
        prop_assert!(run_records(0, free) > 0);
        prop_assert!(free * 8 >= places, "{taken:?} of {places}");
    }

    #[test]
    fn more_that_is_free_never_allows_less(held in 0..100_000_usize, free in 0..100_000_usize, more in 0..1_000_usize) {
        prop_assert!(may_call(held, free + more) >= may_call(held, free));
        prop_assert!(run_records(held, free + more) >= run_records(held, free));
    }

    #[test]
    fn a_handler_that_has_more_never_gets_more(held in 0..100_000_usize, free in 0..100_000_usize, more in 0..1_000_usize) {
        prop_assert!(may_call(held + more, free) <= may_call(held, free));
        prop_assert!(run_records(held + more, free) <= run_records(held, free));
    }
}
