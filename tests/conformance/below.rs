//! A database without numbers of transactions: its scans add late commits with ids below their first.

use keylane::{
    Completed, RecordId,
    inner::{Change, IdScan, NewRecord, Pick},
    partition::PartitionSet,
};

use crate::{
    outbox::{ALL, Outbox, ids, partition, record, settlement},
    target::{SqlTarget, Target},
};

async fn scan<T: Target>(
    outbox: &Outbox<T>,
    from: RecordId,
    skip: &[RecordId],
    limit: usize,
) -> Vec<RecordId> {
    scan_of(outbox, PartitionSet::ALL, from, skip, limit).await
}

async fn scan_of<T: Target>(
    outbox: &Outbox<T>,
    partitions: PartitionSet,
    from: RecordId,
    skip: &[RecordId],
    limit: usize,
) -> Vec<RecordId> {
    let scan = IdScan { partitions, from, reach: 4_096, open: &[], pick: Pick::new(skip, limit) };
    let (records, horizon) = outbox.store.scan_by_id(scan).await.unwrap();
    assert_eq!(horizon.open_from(), None, "whoever gives numbers need not fetch below");
    ids(&records)
}

pub(crate) async fn a_scan_adds_what_is_below_its_first_id<T: Target>(outbox: &Outbox<T>) {
    let all = outbox.schedule_keys(&["order-1", "order-2", "order-3", "order-4", "order-5"]).await;
    assert_eq!(scan(outbox, all[3], &[], ALL).await, all);
    assert_eq!(scan(outbox, all[3], &[all[0], all[4]], ALL).await, all[1..4]);
    assert_eq!(scan(outbox, all[4] + 100, &all[..4], ALL).await, all[4..]);
    assert!(scan(outbox, all[3], &all, ALL).await.is_empty());
}

pub(crate) async fn what_is_below_comes_first_within_the_limit<T: Target>(outbox: &Outbox<T>) {
    let all = outbox.schedule_keys(&["order-1", "order-2", "order-3", "order-4", "order-5"]).await;
    for limit in 1..=6 {
        assert_eq!(scan(outbox, all[2], &[], limit).await, all[..limit.min(5)]);
        assert_eq!(scan(outbox, all[2], &all[..1], limit).await, all[1..(limit + 1).min(5)]);
    }
}

pub(crate) async fn only_what_is_pending_and_owned_is_added<T: Target>(outbox: &Outbox<T>) {
    let of = |number| NewRecord { partition: partition(number), ..record("order-1") };
    let records: Vec<NewRecord> = [1, 2, 3, 1, 2, 3].map(of).into();
    outbox.schedule(&records).await;
    let all = outbox.ids_of(&records).await;
    let owned: PartitionSet = [1, 3].map(partition).into_iter().collect();
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    worker.settle([(all[0], 0, Change::Complete)]).await;
    assert_eq!(scan_of(outbox, owned, all[5] + 1, &[], ALL).await, [all[2], all[3], all[5]]);
    worker.settle([(all[2], 0, crate::outbox::stop()), (all[5], 0, Change::Hold { behind: all[2] })]).await;
    assert_eq!(scan_of(outbox, owned, all[5] + 1, &[], ALL).await, all[3..4]);
}

/// Rows near the first id are read one by one. If there are too many, they are read by the index.
pub(crate) async fn what_is_below_thousands_of_rows_is_added<T: SqlTarget>(outbox: &Outbox<T>) {
    let low = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    // In addition to the two records and the skipped one: one row less than the limit, exactly the limit, and
    // more.
    for (more, rows) in [(4_094, 4_094), (1, 4_095), (1, 4_096), (1, 4_097), (1_000, 5_097)] {
        let new: Vec<NewRecord> = (0..more).map(|n| record(&format!("order-{n}"))).collect();
        outbox.schedule(&new).await;
        let done: Vec<RecordId> =
            ids(&outbox.pending().await).into_iter().filter(|id| !low.contains(id)).collect();
        worker.settle_all(done.iter().map(|id| settlement((*id, 0, Change::Complete))).collect()).await;
        let from = done.iter().max().unwrap() + 1;
        let count = outbox.number("SELECT count(*) FROM {outbox}record WHERE status = 1").await;
        assert_eq!(count, rows);
        assert_eq!(scan(outbox, from, &low[1..], ALL).await, low[..1], "below {rows} rows");
        assert_eq!(scan(outbox, from, &[], 1).await, low[..1], "below {rows} rows");
        assert!(scan(outbox, from, &low, ALL).await.is_empty(), "below {rows} rows");
    }
}
