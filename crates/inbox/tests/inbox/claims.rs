//! Claims: leases, renewals, and owners that are too late.

use std::time::Duration;

use keylane_inbox::{ClaimError, Once, OnceError, ProcessError};

use crate::{
    stage::Stage,
    target::{Target, on_each, past},
};

on_each!(
    a_claim_keeps_others_away_until_its_end,
    a_claim_that_outlived_its_lease_overwrites_nothing,
    a_claim_is_renewed_while_the_work_runs,
    work_whose_claim_is_lost_is_dropped,
);

/// Ends the leases of all claims.
fn expire<T: Target>() -> String {
    format!("UPDATE {{}}message SET lease_until = {}", past::<T::Db>())
}

async fn a_claim_keeps_others_away_until_its_end<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", |builder| builder.owner("first")).await else {
        return;
    };
    let inbox = &stage.inbox;
    let claim = inbox.claim("event", "group").await.unwrap().unwrap();
    match inbox.claim("event", "group").await {
        Err(OnceError::InProgress { owner, left, .. }) => {
            assert!(owner == "first" && left > Duration::from_secs(20) && left <= Duration::from_secs(30));
        }
        other => panic!("{other:?}"),
    }
    let ran = inbox.run("event", "group", async |_| Ok::<_, sqlx::Error>(())).await;
    assert!(matches!(&ran, Err(error @ OnceError::InProgress { .. }) if error.is_retryable()), "{ran:?}");
    inbox.write_failure("event", "group", "not mine", Duration::ZERO).await.unwrap();
    claim.fail("the mail server is away").await.unwrap();
    assert_eq!(stage.messages("status = 'FAILED' AND error = 'the mail server is away'").await, 1);

    let claim = inbox.claim("event", "group").await.unwrap().unwrap();
    claim.complete().await.unwrap();
    assert!(inbox.claim("event", "group").await.unwrap().is_none());
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 2").await, 1);
    stage.end().await;
}

async fn a_claim_that_outlived_its_lease_overwrites_nothing<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let inbox = &stage.inbox;
    // Its process stands still for longer than the lease.
    let expire = &expire::<T>();
    let late = inbox.claim("event", "group").await.unwrap().unwrap();
    stage.execute(expire).await;
    let late_too = inbox.claim("event", "group").await.unwrap().unwrap();
    stage.execute(expire).await;
    assert!(matches!(late.renew().await, Err(ClaimError::Lost { .. })));
    assert!(matches!(late.complete().await, Err(ClaimError::Lost { .. })));
    let claim = inbox.claim("event", "group").await.unwrap().unwrap();
    assert!(matches!(late_too.fail("too late").await, Err(ClaimError::Lost { .. })));
    assert_eq!(stage.messages("status = 'PROCESSING' AND attempts = 3").await, 1);
    // A lease that has ended does no harm to its owner, if nobody else came.
    stage.execute(expire).await;
    claim.renew().await.unwrap();
    claim.complete().await.unwrap();
    assert_eq!(stage.messages("status = 'SUCCESS'").await, 1);
    stage.end().await;
}

async fn a_claim_is_renewed_while_the_work_runs<T: Target>() {
    let lease = |builder: keylane_inbox::InboxBuilder<T::Db>| builder.lease(Duration::from_secs(1));
    let Some(stage) = Stage::<T>::with("READ COMMITTED", lease).await else { return };
    let inbox = &stage.inbox;
    let long = inbox.process("event", "group", async || {
        // Longer than the lease, and others ask all the time.
        for _ in 0..16 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let other = inbox.claim("event", "group").await;
            assert!(matches!(other, Err(OnceError::InProgress { .. })), "{other:?}");
        }
        Ok::<_, sqlx::Error>(7)
    });
    assert_eq!(long.await.unwrap(), Once::Done(7));
    let again = inbox.process("event", "group", async || Ok::<_, sqlx::Error>(8)).await.unwrap();
    assert_eq!(again, Once::Seen);
    let failed = inbox.process("other", "group", async || Err::<(), _>("no")).await;
    assert!(matches!(failed, Err(ProcessError::Once(OnceError::Work("no")))), "{failed:?}");
    assert_eq!(stage.messages("status = 'FAILED' AND event_id = 'other'").await, 1);
    stage.end().await;
}

async fn work_whose_claim_is_lost_is_dropped<T: Target>() {
    let lease = |builder: keylane_inbox::InboxBuilder<T::Db>| builder.lease(Duration::from_secs(1));
    let Some(stage) = Stage::<T>::with("READ COMMITTED", lease).await else { return };
    let inbox = &stage.inbox;
    let work = inbox.process("event", "group", async || {
        // As if its process had stood still for longer than the lease.
        stage.execute(&expire::<T>()).await;
        inbox.claim("event", "group").await.unwrap().unwrap().complete().await.unwrap();
        std::future::pending::<Result<(), sqlx::Error>>().await
    });
    let lost = tokio::time::timeout(Duration::from_secs(10), work).await.expect("the work goes on");
    assert!(matches!(lost, Err(ProcessError::Claim(ClaimError::Lost { .. }))), "{lost:?}");
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 2").await, 1);
    stage.end().await;
}
