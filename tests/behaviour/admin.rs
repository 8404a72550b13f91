//! The administration of a running outbox: draining an instance, repairing many records in steps.

use keylane::{
    Finished, Outbox, Signal,
    admin::{Filter, InstanceState, Status},
};

use crate::{
    ledger::{Ledger, Placed, placed},
    recorder::{bounded, eventually},
    retrying::{failing, refused},
    stage::{Stage, until_count, until_empty},
    user::User,
};

/// The number of partitions of each live instance.
async fn shares<T: User>(outbox: &Outbox<T::Db>) -> Vec<usize> {
    let instances = outbox.admin().instances(100).await.unwrap();
    let live = instances.iter().filter(|instance| instance.state == InstanceState::Active);
    live.map(|instance| instance.partitions).collect()
}

async fn until_shares<T: User>(outbox: &Outbox<T::Db>, expected: &[usize]) {
    eventually("the shares", async || (shares::<T>(outbox).await == expected).then_some(())).await;
}

pub(crate) async fn a_drained_instance_hands_over_and_stays_away<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, first) = stage.run([ledger.keeper("bookkeeper")]).await;
    let (_, second) = stage.run([ledger.keeper("bookkeeper")]).await;
    until_shares::<T>(&outbox, &[128, 128]).await;
    let admin = outbox.admin();
    assert!(admin.drain(first.instance()).await.unwrap());
    assert!(!admin.drain(first.instance()).await.unwrap(), "it drains already");
    let told = bounded("the end of the workers", first.finished()).await;
    assert!(matches!(&told, Finished::Drained { report } if report.graceful), "{told:?}");
    until_shares::<T>(&outbox, &[256]).await;
    let owners = admin.partitions().await.unwrap();
    assert!(owners.iter().all(|row| row.owner == Some(second.instance())));
    // No instance joins in its place, and the other one goes on.
    let events: Vec<Placed> = (0..100).map(|key| placed(&format!("order-{key}"), 1)).collect();
    stage.schedule(&outbox, &events).await;
    ledger.until_done(100).await;
    assert!(first.shutdown().await.graceful, "what the drain came to");
    // A process that starts workers again takes part again.
    let again = outbox.start().await.unwrap();
    until_shares::<T>(&outbox, &[128, 128]).await;
    again.shutdown().await;
    second.shutdown().await;
    assert_eq!(
        stage.signals.count(|signal| matches!(signal, Signal::Joined { .. })),
        3,
        "these and no other"
    );
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::PeerEvicted { .. })), 0);
}

pub(crate) async fn the_only_instance_can_be_drained<T: User>(stage: &Stage<T>) {
    let (outbox, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    until_shares::<T>(&outbox, &[256]).await;
    assert!(outbox.admin().drain(running.instance()).await.unwrap());
    let told = bounded("the end of the workers", running.finished()).await;
    assert!(matches!(&told, Finished::Drained { report } if report.graceful), "{told:?}");
    assert!(outbox.admin().partitions().await.unwrap().iter().all(|row| row.owner.is_none()));
}

pub(crate) async fn what_has_failed_is_repaired_in_steps<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let handler = failing(&ledger, 1, u32::MAX, refused).retry(keylane::RetryPolicy::never());
    let (outbox, running) = stage.run([handler]).await;
    let failures: Vec<Placed> = (0..150).map(|key| placed(&format!("order-{key}"), 1)).collect();
    stage.schedule(&outbox, &failures).await;
    until_count(&outbox, Status::Failed, 150).await;
    let (admin, filter) = (outbox.admin(), Filter::all().handler("bookkeeper"));
    let nothing = admin.retry_all(&Filter::all().handler("mailer"), 0).await.unwrap();
    assert_eq!((nothing.changed, nothing.next), (0, None));
    let first = admin.retry_all(&filter, 0).await.unwrap();
    assert_eq!(first.changed, 100);
    // They fail again. The next step goes on behind them and does not meet them.
    until_count(&outbox, Status::Failed, 150).await;
    let second = admin.retry_all(&filter, first.next.unwrap()).await.unwrap();
    assert_eq!((second.changed, second.next), (50, None));
    until_count(&outbox, Status::Failed, 150).await;
    let corrected = serde_json::to_vec(&placed("corrected", 2)).unwrap();
    let of_one = admin.failed(&Filter::all().key("order-7"), 0, 10).await.unwrap().remove(0).id;
    let step = admin.replace_all(&filter, 0, |record| (record.id == of_one).then(|| corrected.clone()));
    assert_eq!(step.await.unwrap().changed, 1);
    ledger.until_done(1).await;
    let mut after = Some(0);
    let mut discarded = 0;
    while let Some(from) = after {
        let step = admin.discard_all(&filter, from).await.unwrap();
        (discarded, after) = (discarded + step.changed, step.next);
    }
    assert_eq!(discarded, 149);
    until_empty(&outbox).await;
    running.shutdown().await;
}
