//! A database without numbers of transactions: its scans add late commits with ids below their first.

use keylane::{
    Completed, RecordId,
    inner::{Change, IdScan, NewRecord, Pick},
    partition::PartitionSet,
};

use crate::{
    fetcher::Fetcher,
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
    let (records, ahead) = scan_ahead(outbox, (from, None), Pick::new(skip, limit), partitions).await;
    assert!(ahead.is_empty() || records.len() == limit, "only a full scan sees ahead");
    records
}

/// The records that a scan brings, and the ids that it has seen ahead.
async fn scan_ahead<T: Target>(
    outbox: &Outbox<T>,
    (from, seen): (RecordId, Option<&[RecordId]>),
    pick: Pick<'_>,
    partitions: PartitionSet,
) -> (Vec<RecordId>, Vec<RecordId>) {
    let scan = IdScan { partitions, from, reach: 4_096, within: &[], list: 0, open: &[], ahead: seen, pick };
    let (records, horizon) = outbox.store.scan_by_id(scan).await.unwrap();
    assert_eq!(horizon.open_from(), None, "whoever gives numbers need not fetch below");
    (ids(&records), horizon.ahead)
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

/// What is committed after a scan may have to come after a record that only the next scan below brings.
pub(crate) async fn what_was_seen_ahead_is_read_without_what_came_since<T: Target>(outbox: &Outbox<T>) {
    let all = outbox.schedule_keys(&["order-1"; 9]).await;
    let mut late = outbox.begin().await;
    outbox.insert(&mut late, &[record("late")]).await;
    let after = outbox.schedule_keys(&["order-1"; 9]).await;
    let of = |limit| Pick::new(&[], limit);
    let every = PartitionSet::ALL;
    let (brought, ahead) = scan_ahead(outbox, (all[2], None), of(5), every).await;
    assert_eq!((&brought[..], ahead), (&all[..5], [&all[5..], &after].concat()), "the two below count");
    assert_eq!(
        scan_ahead(outbox, (all[1], None), of(1), every).await,
        (vec![all[0]], vec![]),
        "more is below"
    );
    outbox.commit(late).await;
    let seen = [&all[6..], &after[..2], &after[3..]].concat();
    let (brought, ahead) = scan_ahead(outbox, (all[6], Some(&seen)), of(ALL), every).await;
    assert_eq!((brought, ahead), (seen, vec![]));
}

/// A fetcher that reads ahead brings everything once, and the late record of a transaction before those of later ones.
pub(crate) async fn a_late_commit_is_brought_while_ids_are_read_ahead<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = Fetcher::join(outbox).await;
    outbox.schedule_keys(&["order-1"]).await;
    fetcher.drain().await;
    let mut late = outbox.begin().await;
    outbox.insert(&mut late, &[record("order-2")]).await;
    let many = outbox.schedule_keys(&["order-1"; 60]).await;
    outbox.insert(&mut late, &[record("order-2")]).await;
    outbox.schedule_keys(&["order-3"]).await;
    fetcher.limit = 10;
    assert_eq!(ids(&fetcher.fetch().await), many[..10]);
    outbox.commit(late).await;
    fetcher.limit = ALL;
    assert_eq!(ids(&fetcher.fetch().await).len(), 51, "those that were seen ahead");
    let both = fetcher.fetch().await;
    assert_eq!(crate::outbox::keys(&both), ["order-2"; 2]);
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
