//! Rows written by hand into a partition that is not their key's.

use keylane::{
    Signal,
    admin::{Filter, Status},
    partition::Partition,
};

use crate::{
    ledger::{Ledger, placed, run_of},
    stage::{Stage, until_count},
    target::SqlTarget,
    user::{User, qualifier},
};

pub(crate) async fn a_record_in_a_wrong_partition_is_set_aside<T: User + SqlTarget>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let right = Partition::of("order-1");
    let neighbour = (0..).map(|n| format!("other-{n}")).find(|key| Partition::of(key) != right).unwrap();
    let belongs = Partition::of(&neighbour);
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    outbox.schedule_all(&mut work, &run_of(&neighbour, 2)).await.unwrap();
    let sql = format!(
        "UPDATE {}record SET partition_no = {right} WHERE partition_no = {belongs}",
        qualifier(&stage.tables)
    );
    assert_eq!(T::execute(&mut work, sql).await.unwrap(), 2);
    outbox.schedule(&mut work, &placed("order-1", 2)).await.unwrap();
    outbox.schedule(&mut work, &placed(&neighbour, 3)).await.unwrap();
    T::commit(work).await;
    outbox.wake();

    ledger.until_done(3).await;
    until_count(&outbox, Status::Failed, 2).await;
    until_count(&outbox, Status::Pending, 0).await;
    let quarantined = |signal: &Signal| matches!(signal, Signal::Quarantined { .. });
    stage.signals.at_least(2, "records set aside", quarantined).await;
    let told = stage.signals.picked(|signal| match signal {
        Signal::Quarantined { record, partition, belongs } => Some((*record, *partition, *belongs)),
        _ => None,
    });
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap();
    let expected: Vec<_> = failed.iter().map(|failed| (failed.id, right, belongs)).collect();
    assert_eq!(told, expected);
    let error = failed[0].last_error.clone().unwrap();
    assert_eq!(error, format!("stood in partition {right}, but its key belongs to {belongs}"));
    // The other records of the partition, and the key in its own partition, go on.
    assert_eq!(ledger.done_of("order-1"), [1, 2]);
    assert_eq!(ledger.done_of(&neighbour), [3]);
    assert!(outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty());
    assert!(running.shutdown().await.graceful);
}
