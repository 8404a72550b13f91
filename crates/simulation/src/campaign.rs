//! A campaign: many seeds, on all processors.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use keylane_checker::{Report, Violation};

use crate::{Plan, play};

/// The number of seeds after which each state must have been reached. Otherwise the campaign proves nothing.
const ENOUGH: u64 = 500;
/// The number of seeds between two reports of the progress.
const PROGRESS: u64 = 10_000;
const SOMETIMES: [&str; 47] = [
    "batch",
    "call of a forgotten record",
    "call of a former owner",
    "call of a stranger",
    "cancel",
    "claim after a lapse",
    "claims outlived",
    "crash in a call",
    "crashes suspected",
    "deadlock retry",
    "decoder panicked",
    "duplicate",
    "effect apart",
    "error text panicked",
    "evicted",
    "eviction",
    "failed",
    "failover",
    "fallback",
    "fenced outcome refused",
    "forgotten commit",
    "held",
    "hot partition",
    "late commit with a lower id",
    "walk back without what was seen",
    "lease lapsed",
    "lost reply was applied",
    "lost reply was not applied",
    "new record beside a release",
    "observation interrupted",
    "overlap",
    "repair",
    "repeat",
    "retry",
    "rollback",
    "savepoint left open",
    "savepoint undone",
    "server changed",
    "shutdown forced",
    "takeover",
    "target unavailable",
    "transaction replaced",
    "undecodable",
    "undecodable and failed",
    "unknown commit that happened",
    "unroutable",
    "upcast panicked",
];

/// A seed whose run has failed.
#[derive(Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The problem.
    pub what: String,
}

/// The results of a campaign so far.
#[derive(Debug, Default)]
pub struct Campaign {
    next: AtomicU64,
    stopped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seeds: u64,
    report: Report,
    failures: Vec<Failure>,
}

impl Campaign {
    /// Plays seeds from `first` on, one per thread at a time, until `go_on` returns false. `go_on` is called
    /// before each seed with the number of begun seeds. One of `twice` seeds is played twice, to check that
    /// both runs are the same. `progress` is told the numbers of seeds and failures from time to time, and at each
    /// failure.
    pub fn run(
        first: u64,
        threads: usize,
        most_failures: usize,
        twice: u64,
        go_on: impl Fn(u64) -> bool + Sync,
        progress: impl Fn(u64, usize) + Sync,
    ) -> Self {
        let campaign = Self { next: AtomicU64::new(first), ..Self::default() };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !campaign.stopped.load(Relaxed) {
                        let seed = campaign.next.fetch_add(1, Relaxed);
                        if !go_on(seed - first) {
                            return;
                        }
                        if let Some((seeds, failures)) = campaign.seed(seed, most_failures, twice) {
                            progress(seeds, failures);
                        }
                    }
                });
            }
        });
        campaign
    }

    /// Plays a seed. Returns the numbers of seeds and failures if it is time to report them.
    fn seed(&self, seed: u64, most_failures: usize, twice: u64) -> Option<(u64, usize)> {
        let result =
            catch_unwind(AssertUnwindSafe(|| verdict(&Plan::draw(seed), seed.is_multiple_of(twice))));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seeds += 1;
        let failures_before = state.failures.len();
        match result {
            Ok(Ok(report)) => state.report.add(&report),
            Ok(Err(what)) => state.failures.push(Failure { seed, what }),
            Err(_) => {
                state.failures.push(Failure { seed, what: "the simulation itself panicked".to_owned() })
            }
        }
        if state.failures.len() >= most_failures {
            self.stopped.store(true, Relaxed);
        }
        let (seeds, failures) = (state.seeds, state.failures.len());
        (seeds.is_multiple_of(PROGRESS) || failures > failures_before).then_some((seeds, failures))
    }

    /// The states that this many seeds must have reached and have not, or `None`.
    pub fn vacuous(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = state.report.require(SOMETIMES).err();
        missing.filter(|_| state.seeds >= ENOUGH).map(|violation| violation.to_string())
    }

    /// The number of played seeds, the sum of the good reports, and the failures.
    #[must_use]
    pub fn into_parts(self) -> (u64, Report, Vec<Failure>) {
        let State { seeds, report, failures } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (seeds, report, failures)
    }
}

fn verdict(plan: &Plan, twice: bool) -> Result<Report, String> {
    let twice = crate::REPLAYS && twice;
    let outcome = play(plan, false, twice);
    let told = |violation: Violation| violation.to_string();
    let report = outcome.verdict.map_err(told)?;
    if twice {
        let again = play(plan, false, true);
        if again.hash != outcome.hash {
            return Err(format!(
                "two runs of the same seed differ: {} and {} events",
                outcome.events, again.events
            ));
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(seeds: u64, without: Option<&str>) -> Campaign {
        let reached = SOMETIMES.iter().filter(|what| Some(**what) != without);
        let reached = reached.map(|what| ((*what).to_owned(), 1)).collect();
        let state = State { seeds, report: Report { reached, ..Report::default() }, failures: Vec::new() };
        Campaign { state: Mutex::new(state), ..Campaign::default() }
    }

    #[test]
    fn a_campaign_that_never_reaches_a_situation_fails() {
        assert_eq!(campaign(ENOUGH, None).vacuous(), None);
        for what in SOMETIMES {
            let told = campaign(ENOUGH, Some(what)).vacuous();
            assert!(told.is_some_and(|told| told.ends_with(&format!(": {what}"))), "{what}");
            assert_eq!(campaign(ENOUGH - 1, Some(what)).vacuous(), None, "too few seeds to tell");
        }
    }

    /// What a campaign must reach is counted from what happens, and not from what was drawn.
    #[test]
    fn without_faults_no_fence_refuses_and_no_conflict_is_retried() {
        let mut sum = Report::default();
        for seed in 0..4 {
            sum.add(&verdict(&Plan::draw(seed).only(&[]), false).unwrap());
        }
        assert!(sum.reached.contains_key("held"), "{:?}", sum.reached);
        for what in ["deadlock retry", "fenced outcome refused", "lost reply was applied"] {
            assert!(!sum.reached.contains_key(what), "{what}");
        }
    }
}
