//! Scans and heads: the records that one statement finds in its range of ids.

use std::{sync::Arc, time::Duration};

use keylane::{
    Completed, OnFailure, Record, RecordId,
    inner::{Change, Due, IdScan, NewRecord, Pick},
    partition::PartitionSet,
    rules::horizon::{Head, Horizon},
};

use crate::{
    outbox::{ALL, Outbox, due_record, ids, neighbours, partition, record, retry_after, stop},
    target::{SqlTarget, Target},
};

const REACH: i64 = 4_096;

/// A scan of all partitions from the first id.
fn whole(skip: &[RecordId]) -> IdScan<'_> {
    IdScan {
        partitions: PartitionSet::ALL,
        from: 1,
        reach: REACH,
        within: &[],
        list: 0,
        open: &[],
        ahead: None,
        pick: Pick::new(skip, ALL),
    }
}

async fn scan<T: Target>(outbox: &Outbox<T>, scan: IdScan<'_>) -> Vec<RecordId> {
    ids(&outbox.store.scan_by_id(scan).await.unwrap().0)
}

async fn head<T: Target>(outbox: &Outbox<T>, partitions: PartitionSet) -> Head {
    outbox.store.find_head(partitions, &[]).await.unwrap()
}

async fn horizon<T: Target>(outbox: &Outbox<T>) -> Horizon {
    outbox.store.scan_by_id(whole(&[])).await.unwrap().1
}

fn of(numbers: &[i64]) -> PartitionSet {
    numbers.iter().map(|number| partition(*number)).collect()
}

/// Schedules one record in each of these partitions. Returns the ids in that order.
async fn schedule_in<T: Target>(outbox: &Outbox<T>, numbers: &[i64]) -> Vec<RecordId> {
    let new = |number: &i64| NewRecord { partition: partition(*number), ..record("order-1") };
    let records: Vec<NewRecord> = numbers.iter().map(new).collect();
    outbox.schedule(&records).await;
    outbox.ids_of(&records).await
}

pub(crate) async fn a_scan_of_an_empty_outbox_is_empty<T: Target>(outbox: &Outbox<T>) {
    let (records, horizon) = outbox.store.scan_by_id(whole(&[])).await.unwrap();
    assert!(records.is_empty());
    assert_eq!(horizon.last_id, 0);
    let head = head(outbox, PartitionSet::ALL).await;
    assert_eq!((head.first, head.horizon.last_id), (None, 0));
}

pub(crate) async fn a_scan_is_in_id_order_across_partitions<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[200, 3, 255, 0, 3, 64, 200, 63, 128]).await;
    assert!(all.is_sorted());
    assert_eq!(scan(outbox, whole(&[])).await, all);
}

pub(crate) async fn a_scan_brings_only_its_partitions<T: Target>(outbox: &Outbox<T>) {
    // All partitions, which include the last bits of each byte and word of the set.
    let numbers: Vec<i64> = (0..256).collect();
    let all = schedule_in(outbox, &numbers).await;
    for some in [vec![0], vec![7, 8], vec![63, 64, 191, 192], vec![255], vec![1, 128, 254]] {
        let expected: Vec<RecordId> = some.iter().map(|number| all[*number as usize]).collect();
        assert_eq!(scan(outbox, IdScan { partitions: of(&some), ..whole(&[]) }).await, expected);
    }
}

pub(crate) async fn a_scan_begins_at_its_first_id_and_reaches_so_far<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[1, 2, 3, 1, 2, 3, 1, 2]).await;
    let from = all[2];
    for (reach, last) in [(1, 3), (2, 4), (4, 6), (6, 8), (REACH, 8)] {
        // The records below are in memory.
        let found = scan(outbox, IdScan { from, reach, ..whole(&all[..2]) }).await;
        assert_eq!(found, all[2..last], "{reach} ids from {from}");
    }
    assert!(scan(outbox, IdScan { from: all[7] + 1, ..whole(&all) }).await.is_empty());
}

pub(crate) async fn a_scan_stops_at_its_limit<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[9, 8, 7, 6, 5, 4, 3, 2]).await;
    for limit in [1, 3, 8, 9] {
        let found = scan(outbox, IdScan { pick: Pick::new(&[], limit), ..whole(&[]) }).await;
        assert_eq!(found, all[..limit.min(8)], "the lowest ids come first");
    }
}

pub(crate) async fn what_a_scan_skips_does_not_use_up_its_limit<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[9, 8, 7, 6, 5, 4, 3, 2]).await;
    // Ids far away are skipped, too: the ids in memory may be anywhere.
    let skip = [all[0], all[1], all[4], all[7] + 70_000, RecordId::MAX];
    let found = scan(outbox, IdScan { pick: Pick::new(&skip, 3), ..whole(&[]) }).await;
    assert_eq!(found, [all[2], all[3], all[5]]);
    let found = scan(outbox, IdScan { from: all[3], pick: Pick::new(&all[..3], 3), ..whole(&[]) }).await;
    assert_eq!(found, all[3..6]);
    assert!(scan(outbox, whole(&all)).await.is_empty());
}

pub(crate) async fn a_scan_skips_as_many_as_memory_holds<T: Target>(outbox: &Outbox<T>) {
    let keys: Vec<NewRecord> = (0..3_000).map(|n| record(&format!("order-{n}"))).collect();
    outbox.schedule(&keys).await;
    let all = scan(outbox, whole(&[])).await;
    assert_eq!(all.len(), 3_000);
    assert_eq!(scan(outbox, whole(&all[..2_990])).await, all[2_990..]);
    assert_eq!(scan(outbox, IdScan { from: all[1_000], ..whole(&all[..2_990]) }).await, all[2_990..]);
}

/// Delayed, held, failed and completed records are between pending ones: no scan brings them, and none is the
/// head.
pub(crate) async fn only_pending_records_are_scanned_and_found_as_head<T: Target>(outbox: &Outbox<T>) {
    let (key, neighbour) = neighbours();
    let first = outbox.schedule_keys(&[&key, &key, "order-1", "order-2", "order-3", "order-4", &key]).await;
    outbox.schedule(&[due_record("order-5", Due::After(Duration::from_secs(3600)))]).await;
    outbox.schedule(&[due_record("order-6", Due::After(Duration::ZERO))]).await;
    let pending = outbox.schedule_keys(&[&neighbour, "order-7"]).await;
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    let fail = |lane| Change::Fail { counted: true, error: "spent".to_owned(), lane };
    worker.settle([(first[0], 0, stop()), (first[1], 0, Change::Hold { behind: first[0] })]).await;
    worker.settle([(first[2], 0, fail(OnFailure::Block)), (first[3], 0, fail(OnFailure::Continue))]).await;
    worker.settle([(first[4], 0, Change::Complete), (first[5], 0, Change::Unroutable)]).await;
    worker.settle([(first[6], 0, Change::Hold { behind: first[0] })]).await;
    assert_eq!(scan(outbox, whole(&[])).await, pending);
    assert_eq!(head(outbox, PartitionSet::ALL).await.first, Some(pending[0]));
    // A released lane returns its held records to their places.
    worker.settle([(first[0], 1, Change::CompleteAndResume)]).await;
    assert_eq!(scan(outbox, whole(&[])).await, [&[first[1], first[6]], pending.as_slice()].concat());
    assert_eq!(head(outbox, PartitionSet::ALL).await.first, Some(first[1]));
}

pub(crate) async fn a_scan_brings_the_same_fields_as_a_fetch<T: Target>(outbox: &Outbox<T>) {
    let rich = NewRecord {
        handler: "billing:invoice/2".into(),
        content_type: "application/cbor".into(),
        payload: vec![0, 1, 255],
        headers: [("trace_id", "4bf92f35"), ("b", "\"ä\"")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..record("order-ü")
    };
    let empty = NewRecord { payload: Vec::new(), ..record("order-2") };
    outbox.schedule(&[rich, empty]).await;
    // A record that has failed before: it was held and has returned.
    let (mut worker, tried) = (outbox.join().await, outbox.schedule_keys(&["order-1", "order-1"]).await);
    worker.settle([(tried[1], 0, retry_after(Duration::ZERO)), (tried[0], 0, stop())]).await;
    worker.settle([(tried[1], 1, Change::Hold { behind: tried[0] })]).await;
    worker.settle([(tried[0], 1, Change::CompleteAndResume)]).await;
    let fields = |mut records: Vec<Arc<Record>>| {
        records.sort_by_key(|record| record.delivery.id);
        let but_age = |record: Arc<Record>| {
            let mut record = Arc::unwrap_or_clone(record);
            assert!(record.delivery.age < Duration::from_secs(60), "{:?}", record.delivery.age);
            record.delivery.age = Duration::ZERO;
            format!("{record:?} {:?}", record.payload)
        };
        records.into_iter().map(but_age).collect::<Vec<_>>()
    };
    let scanned = outbox.store.scan_by_id(whole(&[])).await.unwrap().0;
    assert_eq!(scanned.iter().map(|record| record.delivery.attempt).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(fields(scanned), fields(outbox.pending().await));
}

pub(crate) async fn a_head_names_the_least_pending_id_of_its_partitions<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[9, 4, 255, 4, 9]).await;
    for (numbers, first) in [(vec![4, 9, 255], 0), (vec![4, 255], 1), (vec![255], 2), (vec![0, 4], 1)] {
        assert_eq!(head(outbox, of(&numbers)).await.first, Some(all[first]), "{numbers:?}");
    }
    assert_eq!(head(outbox, of(&[0, 5, 254])).await.first, None);
    // What is in memory is nobody's head.
    for (skip, first) in [(&all[..1], Some(all[1])), (&all[1..2], Some(all[0])), (&all[..], None)] {
        assert_eq!(outbox.store.find_head(PartitionSet::ALL, skip).await.unwrap().first, first, "{skip:?}");
    }
    let mut worker = outbox.join().await;
    worker.settle([(all[0], 0, Change::Complete), (all[1], 0, Change::Complete)]).await;
    assert_eq!(head(outbox, PartitionSet::ALL).await.first, Some(all[2]));
    assert_eq!(head(outbox, of(&[4])).await.first, Some(all[3]));
}

pub(crate) async fn the_horizon_grows_with_every_id<T: Target>(outbox: &Outbox<T>) {
    let mut open_from = None;
    for _ in 0..3 {
        let last = *schedule_in(outbox, &[1, 2, 3]).await.last().unwrap();
        let (scanned, head) = (horizon(outbox).await, head(outbox, PartitionSet::ALL).await);
        assert_eq!([scanned.last_id, head.horizon.last_id], [last; 2]);
        // Either both have numbers or neither has, and numbers grow.
        assert_eq!(scanned.open_from().is_some(), head.number.is_some());
        assert!(scanned.open_from() >= open_from, "{:?} after {open_from:?}", scanned.open_from());
        let end = head.horizon.snapshot.as_ref().map(|snapshot| snapshot.end);
        assert!(head.number < end || end.is_none(), "its snapshot is taken after its number has ended");
        open_from = scanned.open_from();
    }
}

/// On databases with snapshots, a scan lists ids if it is asked to, also those of records that it does not read.
pub(crate) async fn a_scan_lists_as_many_ids_as_it_is_asked_for<T: Target>(outbox: &Outbox<T>) {
    let all = schedule_in(outbox, &[1, 2, 3, 4]).await;
    for (list, skip) in [(0, &[][..]), (3, &[][..]), (3, &all[..1]), (9, &all[..])] {
        let scan = IdScan { list, from: all[0], ..whole(skip) };
        let horizon = outbox.store.scan_by_id(scan).await.unwrap().1;
        let listed = if horizon.snapshot.is_some() { list.min(all.len()) } else { 0 };
        assert_eq!(horizon.visible, all[..listed], "{list} {skip:?}");
    }
}

/// Other transactions have used up thousands of ids without a row.
pub(crate) async fn the_least_pending_id_is_found_behind_a_gap<T: SqlTarget>(outbox: &Outbox<T>) {
    let low = schedule_in(outbox, &[1, 2]).await;
    outbox.execute(&format!("UPDATE {{outbox}}record SET id = id + 100000 WHERE id = {}", low[1])).await;
    let head = head(outbox, of(&[2])).await;
    assert_eq!(head.first, Some(low[1] + 100_000));
    let from = low[1] + 100_000;
    assert_eq!(scan(outbox, IdScan { from, reach: 1, ..whole(&low[..1]) }).await, [from]);
    assert!(scan(outbox, IdScan { from: from - REACH, ..whole(&low[..1]) }).await.is_empty());
}
