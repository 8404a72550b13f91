//! The health of workers.

use std::time::Duration;

use keylane::{
    Running,
    health::{Degradation, HealthState},
    memory::Fault,
};
use tokio::time::sleep;

use crate::{
    leases::{Paused, s},
    ledger::{Ledger, placed},
    recorder::eventually,
};

/// Waits until the workers report such a reason.
pub(crate) async fn until_degraded(running: &Running, is: impl Fn(&Degradation) -> bool) {
    eventually("the workers tell what is amiss", async || match running.health().state {
        HealthState::Degraded(reasons) => reasons.iter().any(&is).then_some(()),
        _ => None,
    })
    .await;
}

pub(crate) async fn until_healthy(running: &Running) {
    eventually("the workers are healthy", async || {
        let health = running.health();
        (health.ready && health.state == HealthState::Healthy).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_is_told_until_it_holds_again() {
    let stage = Paused::new();
    let (_, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    until_healthy(&running).await;
    // A failed beat is tried again after a fifth of the interval: twelve seconds without a reply.
    stage.pool.fail_next("beat", 60, Fault::NotApplied);
    until_degraded(&running, |reason| matches!(reason, Degradation::LeaseLapsed { .. })).await;
    sleep(s(1)).await;
    let health = running.health();
    assert!(health.live && !health.ready, "{health:?}");
    let HealthState::Degraded(reasons) = &health.state else { panic!("{health:?}") };
    let lapsed = |reason: &Degradation| matches!(reason, Degradation::LeaseLapsed { lapsed_for } if *lapsed_for >= s(1) && *lapsed_for < s(3));
    assert!(reasons.iter().any(lapsed), "{health:?}");
    until_healthy(&running).await;
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_to_be_written_are_told() {
    let stage = Paused::new();
    let (outbox, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    until_healthy(&running).await;
    stage.pool.fail_next("settle", 1, Fault::LostReply);
    stage.pool.fail_next("resolve", 9, Fault::NotApplied);
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    let waits = |reason: &Degradation| matches!(reason, Degradation::SettleWaits { waiting_for } if *waiting_for > s(1));
    until_degraded(&running, waits).await;
    until_healthy(&running).await;
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn partitions_that_nobody_owns_are_told() {
    let stage = Paused::new();
    stage.pool.fail_next("claim", 10, Fault::NotApplied);
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    let unowned = |reason: &Degradation| matches!(reason, Degradation::PartitionsUnowned { partitions } if partitions.len() == 256);
    until_degraded(&running, unowned).await;
    until_healthy(&running).await;
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn workers_that_died_are_not_live() {
    let stage = Paused::new();
    stage.pool.fail_next("claim", 1, Fault::Panic);
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), running.finished()).await.expect("nobody is told");
    let health = running.health();
    assert!(!health.live && !health.ready, "{health:?}");
    assert_eq!(health.state, HealthState::Degraded(vec![Degradation::Stopping]));
    let _ = running.shutdown().await;
}
