//! The only order: the id, drawn at the insert, visible at the commit.

use keylane::{
    database::Database,
    inner::{Change, NewRecord, Pick},
};

use crate::{
    outbox::{Outbox, ids, keys, record},
    target::Target,
};

pub(crate) async fn five_records_of_one_key_in_one_transaction_keep_their_order<T: Target>(
    outbox: &Outbox<T>,
) {
    let records: Vec<NewRecord> = (0..5).map(|_| record("order-1")).collect();
    let mut tx = outbox.begin().await;
    for record in &records {
        outbox.insert(&mut tx, std::slice::from_ref(record)).await;
    }
    outbox.commit(tx).await;
    let fetched: Vec<_> = outbox.pending().await.iter().map(|record| record.delivery.event_id).collect();
    assert_eq!(fetched, records.iter().map(|record| record.event_id).collect::<Vec<_>>());
}

pub(crate) async fn a_large_batch_keeps_its_order<T: Target>(outbox: &Outbox<T>) {
    let records: Vec<NewRecord> = (0..2_500).map(|_| record("order-1")).collect();
    outbox.schedule(&records).await;
    let fetched: Vec<_> = outbox.pending().await.iter().map(|record| record.delivery.event_id).collect();
    assert_eq!(fetched, records.iter().map(|record| record.event_id).collect::<Vec<_>>());
}

pub(crate) async fn a_batch_of_mixed_due_times_keeps_its_order<T: Target>(outbox: &Outbox<T>) {
    let later = keylane::inner::Due::After(std::time::Duration::from_secs(3600));
    let records: Vec<NewRecord> = (0..9)
        .map(|n| if n % 3 == 1 { NewRecord { due: later, ..record("order-1") } } else { record("order-1") })
        .collect();
    outbox.schedule(&records).await;
    let now = records.iter().filter(|record| record.due == keylane::inner::Due::Now);
    let fetched: Vec<_> = outbox.pending().await.iter().map(|record| record.delivery.event_id).collect();
    assert_eq!(fetched, now.map(|record| record.event_id).collect::<Vec<_>>());
}

pub(crate) async fn a_rolled_back_insert_leaves_nothing<T: Target>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    outbox.insert(&mut tx, &[record("order-1"), record("order-2")]).await;
    drop(tx);
    outbox.schedule_keys(&["order-3"]).await;
    assert_eq!(keys(&outbox.pending().await), ["order-3"]);
}

pub(crate) async fn an_open_transaction_shows_nothing<T: Target>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    outbox.insert(&mut tx, &[record("order-1")]).await;
    assert!(outbox.pending().await.is_empty());
    outbox.commit(tx).await;
    assert_eq!(outbox.pending().await.len(), 1);
}

/// `reliability.md` 5.1: a reader that keeps the highest id it has seen loses the first record.
pub(crate) async fn a_late_commit_with_a_lower_id_is_not_lost<T: Target>(outbox: &Outbox<T>) {
    let mut early = outbox.begin().await;
    outbox.insert(&mut early, &[record("order-1")]).await;
    let late = outbox.schedule_keys(&["order-1"]).await;
    assert_eq!(outbox.pending_ids("order-1").await, late);
    outbox.commit(early).await;
    let both = outbox.pending_ids("order-1").await;
    assert_eq!(both.len(), 2);
    assert!(both[0] < late[0], "the late commit has the lower id");
}

pub(crate) async fn a_late_commit_is_fetched_after_the_later_id_was_completed<T: Target>(outbox: &Outbox<T>) {
    let mut early = outbox.begin().await;
    outbox.insert(&mut early, &[record("order-1")]).await;
    let late = outbox.schedule_keys(&["order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(late[0], 0, Change::Complete)]).await;
    outbox.commit(early).await;
    assert!(outbox.pending_ids("order-1").await[0] < late[0]);
}

pub(crate) async fn many_open_transactions_lose_nothing<T: Target>(outbox: &Outbox<T>) {
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut tx = outbox.begin().await;
        outbox.insert(&mut tx, &[record("order-1"), record("order-1")]).await;
        open.push(tx);
    }
    let mut seen = Vec::new();
    // The last to insert commits first.
    while let Some(tx) = open.pop() {
        outbox.commit(tx).await;
        let fetched = ids(&outbox
            .store
            .fetch_by_partition(&[record("order-1").partition], Pick::new(&seen, 100))
            .await
            .unwrap());
        assert_eq!(fetched.len(), 2);
        seen.extend(fetched);
    }
    assert_eq!(seen.len(), 6);
}

pub(crate) async fn what_was_committed_before_comes_first<T: Target>(outbox: &Outbox<T>) {
    for _ in 0..20 {
        outbox.schedule_keys(&["order-1"]).await;
    }
    let fetched = outbox.pending().await;
    // Event ids are made in the order of scheduling, so they must come back sorted.
    assert!(fetched.is_sorted_by_key(|record| record.delivery.event_id));
    assert!(ids(&fetched).is_sorted());
}

/// `reliability.md` 5.1: an order by transaction ids puts the second record first here.
pub(crate) async fn causal_order_holds_if_the_later_transaction_began_first<T: Target>(outbox: &Outbox<T>) {
    let mut second = outbox.begin().await;
    let first = outbox.schedule_keys(&["order-1"]).await;
    let late = record("order-1");
    outbox.insert(&mut second, std::slice::from_ref(&late)).await;
    outbox.commit(second).await;
    assert_eq!(outbox.pending_ids("order-1").await, [first, outbox.ids_of(&[late]).await].concat());
}

pub(crate) async fn causal_order_holds_if_the_later_transaction_wrote_first<T: Target>(outbox: &Outbox<T>) {
    let mut second = outbox.begin().await;
    // The first write gives the transaction the lower id.
    outbox.insert(&mut second, &[record("order-2")]).await;
    let first = outbox.schedule_keys(&["order-1"]).await;
    let late = record("order-1");
    outbox.insert(&mut second, std::slice::from_ref(&late)).await;
    outbox.commit(second).await;
    assert_eq!(outbox.pending_ids("order-1").await, [first, outbox.ids_of(&[late]).await].concat());
}

pub(crate) async fn ids_are_not_used_again<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let mut last = 0;
    for _ in 0..3 {
        // The highest id is deleted each time. Without AUTOINCREMENT, SQLite would give it out again.
        let id = outbox.schedule_keys(&["order-1"]).await[0];
        assert!(id > last, "{id} after {last}");
        worker.settle([(id, 0, Change::Complete)]).await;
        last = id;
    }
}

pub(crate) async fn an_open_transaction_does_not_hold_back_the_worker<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    let mut open = T::Db::begin(&outbox.pool).await.unwrap();
    outbox.insert(&mut open, &[record("order-1")]).await;
    crate::outbox::promptly(worker.settle([(id, 0, Change::Complete)])).await;
    outbox.commit(open).await;
    assert_eq!(outbox.pending().await.len(), 1);
}
