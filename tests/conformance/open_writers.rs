//! A writer that stays open delays no fetch, and no fetch misses its late commit.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, resume_unwind},
};

use futures::FutureExt;
use keylane::{
    RecordId,
    inner::{IdScan, NewRecord, Pick},
    partition::PartitionSet,
};
use uuid::Uuid;

use crate::{
    fetcher::Fetcher,
    outbox::{ALL, Outbox, ids, keys, record},
    target::{Server, Target},
};

/// More ids than those by which a fetch begins earlier because of an open transaction, of this test or of another
/// test on the same server.
const FAR: i64 = 150;

/// An instance that has settled before, so that it knows a bound for the ids of later transactions.
async fn known<T: Target>(outbox: &Outbox<T>) -> Fetcher<'_, T> {
    let mut fetcher = Fetcher::join(outbox).await;
    let first = outbox.schedule_keys(&["first"]).await[0];
    fetcher.until_behind(first).await;
    fetcher
}

/// Runs rounds of a commit, a fetch and a settle. Returns the last id.
async fn rounds<T: Target>(outbox: &Outbox<T>, fetcher: &mut Fetcher<'_, T>, rounds: usize) -> RecordId {
    let mut last = 0;
    for _ in 0..rounds {
        last = outbox.schedule_keys(&["order-1"]).await[0];
        assert_eq!(ids(&fetcher.fetch().await), [last]);
        fetcher.settle(ALL).await;
    }
    last
}

pub(crate) async fn an_open_writer_holds_no_fetch_back<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = known(outbox).await;
    let mut open = outbox.begin().await;
    outbox.insert(&mut open, &[record("late")]).await;
    let last = rounds(outbox, &mut fetcher, 200).await;
    let next = fetcher.next().expect("it is known");
    assert!(next > last - FAR, "fetches begin at {next}, {last} was read");
    outbox.commit(open).await;
    assert_eq!(keys(&fetcher.fetch().await), ["late"]);
    fetcher.settle(ALL).await;
    let last = rounds(outbox, &mut fetcher, 5).await;
    assert!(fetcher.next().is_some_and(|next| next > last - FAR), "it has come back");
}

/// A fetch of one record brings the earlier one, although it became visible far behind.
pub(crate) async fn what_is_committed_late_comes_before_a_later_record_of_its_key<T: Target>(
    outbox: &Outbox<T>,
) {
    let mut fetcher = known(outbox).await;
    let mut open = outbox.begin().await;
    outbox.insert(&mut open, &[record("late")]).await;
    rounds(outbox, &mut fetcher, 10).await;
    outbox.commit(open).await;
    assert_late_comes_first(outbox, &mut fetcher).await;
}

/// Schedules a later record of the same key, and fetches one record at a time.
async fn assert_late_comes_first<T: Target>(outbox: &Outbox<T>, fetcher: &mut Fetcher<'_, T>) {
    let later = outbox.schedule_keys(&["late"]).await[0];
    fetcher.limit = 1;
    let first = fetcher.fetch().await;
    assert!(keys(&first) == ["late"] && first[0].delivery.id < later, "{:?}", ids(&first));
    assert_eq!(ids(&fetcher.fetch().await), [later]);
}

/// The first phase of a commit in two phases is over, and the second one comes much later.
pub(crate) async fn a_prepared_transaction_is_like_an_open_one<T: Server>(outbox: &Outbox<T>) {
    let mut fetcher = known(outbox).await;
    let id = Uuid::now_v7().simple().to_string();
    let mut tx = outbox.begin().await;
    T::execute(&mut tx, T::BEGIN_IN_TWO_PHASES.replace("{id}", &id)).await.unwrap();
    outbox.insert(&mut tx, &[record("late")]).await;
    T::execute(&mut tx, T::PREPARE.replace("{id}", &id)).await.unwrap();
    // A prepared transaction would outlive the test, so it is committed whatever the test finds.
    let meanwhile = async { (rounds(outbox, &mut fetcher, 200).await, fetcher.next()) };
    let meanwhile = AssertUnwindSafe(meanwhile).catch_unwind().await;
    T::execute(&mut tx, T::COMMIT_PREPARED.replace("{id}", &id)).await.unwrap();
    let (last, next) = meanwhile.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(next.is_some_and(|next| next > last - FAR), "fetches begin at {next:?}, {last} was read");
    assert_late_comes_first(outbox, &mut fetcher).await;
}

/// Fetches of three records, while late commits are spread over settled records and records in memory.
pub(crate) async fn a_walk_back_that_is_cut_keeps_every_key_in_order<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = known(outbox).await;
    let mut open = [outbox.begin().await, outbox.begin().await];
    let key = |number: usize| format!("order-{}", number % 4);
    for number in 0..24 {
        let tx = &mut open[number % 2];
        outbox.insert(tx, &[record(&key(number / 2))]).await;
        outbox.schedule_keys(&["other"]).await;
        fetcher.fetch().await;
        fetcher.settle(number % 3).await;
    }
    let mut brought: Vec<(RecordId, String)> = Vec::new();
    fetcher.limit = 3;
    for tx in open {
        outbox.commit(tx).await;
        let after: Vec<NewRecord> = (0..4).map(|number| record(&key(number))).collect();
        outbox.schedule(&after).await;
        loop {
            let found = fetcher.fetch().await;
            let found = found.iter().map(|record| (record.delivery.id, record.delivery.key.to_string()));
            let before = brought.len();
            brought.extend(found);
            if brought.len() == before && !fetcher.more {
                break;
            }
        }
        let mut last = BTreeMap::new();
        let passed =
            brought.drain(..).find(|(id, key)| last.insert(key.clone(), *id).is_some_and(|last| last > *id));
        assert_eq!(passed, None, "an earlier record of its key was brought after a later one");
    }
    fetcher.limit = ALL;
    fetcher.drain().await;
    assert!(outbox.pending().await.is_empty());
}

/// A writer ends that is so far behind that scans have listed what they saw: its record and what was rolled back are
/// looked for, and not all that was settled meanwhile.
pub(crate) async fn a_walk_back_leaves_out_what_was_seen<T: Target>(outbox: &Outbox<T>) {
    let has_numbers = outbox.store.draw_number().await.unwrap().is_some();
    let mut fetcher = known(outbox).await;
    // Transactions of other tests on the same server may lead back to the head, or make what was seen unknown.
    for _ in 0..20 {
        let [late, first, last] = ids_around_a_late_one(outbox, &mut fetcher).await;
        assert!(has_numbers || fetcher.others.is_empty());
        if !has_numbers {
            return;
        }
        let is_read =
            |id: RecordId| fetcher.others.iter().any(|(first, last)| (*first..=*last).contains(&id));
        let left_out = (first + 1..=last).filter(|id| !is_read(*id)).count();
        if is_read(late) && left_out >= 15 {
            return;
        }
        fetcher.until_behind(last).await;
    }
    panic!("no walk has left out what was seen: {:?}, {:?}", fetcher.others, fetcher.readings);
}

/// A record is written, then 5,000 are rolled back, then others are settled, and then the record is committed. Returns
/// its id, and the first and last of the others.
async fn ids_around_a_late_one<T: Target>(outbox: &Outbox<T>, fetcher: &mut Fetcher<'_, T>) -> [RecordId; 3] {
    let mut open = outbox.begin().await;
    outbox.insert(&mut open, &[record("late")]).await;
    let mut undone = outbox.begin().await;
    outbox.insert(&mut undone, &vec![record("undone"); 5_000]).await;
    drop(undone);
    let first = rounds(outbox, fetcher, 3).await;
    let last = rounds(outbox, fetcher, 20).await;
    outbox.commit(open).await;
    let later = outbox.schedule_keys(&["late"]).await[0];
    // Only the scan that brings the late one counts.
    fetcher.others.clear();
    let mut brought = fetcher.fetch().await;
    if brought.len() == 1 {
        brought.extend(fetcher.fetch().await);
    }
    fetcher.settle(ALL).await;
    assert_eq!((keys(&brought), ids(&brought)[1]), (vec!["late".to_owned(), "late".to_owned()], later));
    [ids(&brought)[0], first, last]
}

/// On databases with numbers of transactions, the snapshot of a scan shows whether the scan has begun too
/// late.
pub(crate) async fn a_scan_reads_nothing_after_a_transaction_that_it_names<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule_keys(&["order-1"]).await;
    let mut tx = outbox.begin().await;
    outbox.insert(&mut tx, &[record("late")]).await;
    let scan = IdScan {
        partitions: PartitionSet::ALL,
        from: 1,
        reach: 4_096,
        within: &[],
        list: 0,
        open: &[],
        ahead: None,
        pick: Pick::new(&[], ALL),
    };
    // The number is drawn afterwards, so that the snapshot lists the open transactions below it.
    let number = outbox.store.draw_number().await.unwrap().map(|(witness, _)| witness.number);
    let (_, horizon) = outbox.store.scan_by_id(scan).await.unwrap();
    let open = horizon.snapshot.map(|snapshot| snapshot.open).unwrap_or_default();
    assert_eq!(open.is_empty(), number.is_none(), "{open:?}");
    let named = IdScan { open: &open, ..scan };
    // Other transactions of the server may have ended in between, and then the scan reads nothing.
    let (before, horizon) = outbox.store.scan_by_id(named).await.unwrap();
    let ended = horizon.snapshot.is_some_and(|seen| open.iter().any(|number| seen.sees(*number)));
    assert_eq!(before.is_empty(), ended);
    outbox.commit(tx).await;
    let (after, _) = outbox.store.scan_by_id(named).await.unwrap();
    assert_eq!(after.len(), if number.is_some() { 0 } else { 2 });
    assert_eq!(outbox.store.scan_by_id(scan).await.unwrap().0.len(), 2);
}
