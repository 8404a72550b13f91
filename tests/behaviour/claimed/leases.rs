//! Leases of claims, on tokio's paused clock: with the store in memory, a long outage takes no time.

use std::time::Duration;

use keylane::{Mode, Signal, memory::Fault};
use tokio::time::{Instant, sleep};

use crate::{
    leases::{Paused, s},
    ledger::{Ledger, Placed, Step, run_of, typed},
    stage::until_empty,
};

/// Renewals fail, claims do not. The lease of ten seconds is trusted for nine; each call takes four.
#[tokio::test(start_paused = true)]
async fn a_lapse_cancels_what_runs_and_nothing_is_called_without_a_claim() {
    let mut stage = Paused::new();
    stage.config.mode = Mode::Claimed;
    stage.config.delivery.claim_lease = s(10);
    let ledger = Ledger::default();
    let kept = ledger.clone();
    let slow = typed("bookkeeper", move |event: Placed, delivery| {
        let ledger = kept.clone();
        async move {
            ledger.push(Step::Began, &event, &delivery);
            sleep(s(4)).await;
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    let outbox = stage.outbox([slow.concurrency(1)]).await;
    let running = outbox.start().await.unwrap();
    stage.pool.fail_next("renew claims", 1_000, Fault::NotApplied);
    let since = Instant::now();
    stage.schedule(&outbox, &run_of("order-1", 4)).await;
    let lapsed = |signal: &Signal| matches!(signal, Signal::LeaseLapsed).then(Instant::now);
    let lapsed = stage.signals.first("the lease to lapse", lapsed).await - since;
    assert!((s(8)..=s(10)).contains(&lapsed), "{lapsed:?}");
    stage.pool.fail_next("renew claims", 0, Fault::NotApplied);
    until_empty(&outbox).await;
    running.shutdown().await;
    let of = |step| {
        let steps = ledger.steps(step);
        steps.into_iter().map(|entry| (entry.event.number, entry.delivery.generation.0)).collect::<Vec<_>>()
    };
    assert_eq!(of(Step::Done)[..2], [(1, 1), (2, 1)]);
    assert_eq!(of(Step::Began)[..3], [(1, 1), (2, 1), (3, 1)]);
    let mut again = of(Step::Done)[2..].to_vec();
    again.sort_unstable();
    assert_eq!(again, [(3, 2), (4, 2)], "the third call was cancelled, and the fourth did not begin");
    let began: Vec<Duration> = ledger.steps(Step::Began).iter().map(|entry| entry.at - since).collect();
    assert!(began[3] >= s(10), "the first claims had to end: {began:?}");
}
