//! Crashes that count against partitions, and against tracked calls that had not ended.

use keylane::{
    OnFailure, RecordId,
    inner::{Change, Repair, Suspicion},
    partition::PartitionSet,
};

use crate::{
    outbox::{Outbox, Worker, partition},
    target::Target,
};

async fn owner<T: Target>(outbox: &Outbox<T>) -> Worker {
    let worker = outbox.join().await;
    let view = outbox.store.view().await.unwrap();
    let all = [1, 2].map(|n| (partition(n), view.claims[n as usize].generation));
    assert_eq!(outbox.store.claim(worker.id, &all).await.unwrap().len(), 2);
    worker
}

/// Evicts the instance because of its silence.
async fn crash<T: Target>(outbox: &Outbox<T>, worker: &Worker) {
    assert!(outbox.store.evict(worker.id, Some(0)).await.unwrap());
}

async fn suspicions<T: Target>(outbox: &Outbox<T>) -> Vec<Suspicion> {
    let mut found = outbox.store.suspicions(PartitionSet::ALL).await.unwrap();
    found.sort_by_key(|suspicion| (suspicion.partition, suspicion.record));
    found
}

fn suspicion(number: i64, record: Option<RecordId>, crashes: u32) -> Suspicion {
    Suspicion { partition: partition(number), record, crashes }
}

pub(crate) async fn a_crash_counts_for_what_was_owned_and_for_calls_that_had_not_ended<T: Target>(
    outbox: &Outbox<T>,
) {
    for round in 1..=2 {
        let worker = owner(outbox).await;
        outbox.store.track_call(worker.id, partition(1), 7).await.unwrap();
        outbox.store.track_call(worker.id, partition(1), 8).await.unwrap();
        outbox.store.end_tracking(8).await.unwrap();
        crash(outbox, &worker).await;
        let expected = [suspicion(1, None, round), suspicion(1, Some(7), round), suspicion(2, None, round)];
        assert_eq!(suspicions(outbox).await, expected);
    }
    let elsewhere = [partition(2)].into_iter().collect();
    assert_eq!(outbox.store.suspicions(elsewhere).await.unwrap(), [suspicion(2, None, 2)]);
    outbox.store.end_tracking(7).await.unwrap();
    assert_eq!(suspicions(outbox).await.len(), 2);
}

pub(crate) async fn who_lets_go_or_is_late_has_not_crashed<T: Target>(outbox: &Outbox<T>) {
    let worker = owner(outbox).await;
    outbox.store.track_call(worker.id, partition(1), 7).await.unwrap();
    assert!(outbox.store.evict(worker.id, None).await.unwrap(), "it beat, and did not let go");
    let worker = owner(outbox).await;
    outbox.store.track_call(worker.id, partition(1), 8).await.unwrap();
    outbox.store.leave(worker.id).await.unwrap();
    assert!(suspicions(outbox).await.is_empty());
}

pub(crate) async fn a_partition_that_is_calm_is_suspected_no_more<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let worker = owner(outbox).await;
    for record in [id, id + 1] {
        outbox.store.track_call(worker.id, partition(1), record).await.unwrap();
    }
    crash(outbox, &worker).await;
    let worker = owner(outbox).await;
    let both = [partition(1), partition(2)].into_iter().collect();
    outbox.store.calm(outbox.join().await.id, both).await.unwrap();
    assert_eq!(
        suspicions(outbox).await.len(),
        3,
        "only the owner clears a suspicion, unless its record is gone"
    );
    outbox.store.calm(worker.id, both).await.unwrap();
    assert_eq!(suspicions(outbox).await, [suspicion(1, Some(id), 1)], "the record is still there");
}

pub(crate) async fn repairing_a_record_clears_its_crashes<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let worker = owner(outbox).await;
    outbox.store.track_call(worker.id, partition(1), id).await.unwrap();
    crash(outbox, &worker).await;
    let fail = Change::Fail { counted: true, error: "crashed".to_owned(), lane: OnFailure::Block };
    outbox.join().await.settle([(id, 0, fail)]).await;
    assert!(outbox.store.repair(id, &Repair::Retry).await.unwrap());
    assert!(suspicions(outbox).await.iter().all(|suspicion| suspicion.record.is_none()));
}
