//! Deadlines: each fetch brings the remaining time, by the database's clock.

use std::time::{Duration, SystemTime};

use keylane::{
    OnFailure,
    admin::Filter,
    inner::{Change, Deadline, Due, IdScan, NewRecord, Pick, Repair},
    partition::{Partition, PartitionSet},
};

use crate::{
    outbox::{ALL, Outbox, record, retry_after},
    target::Target,
};

const SHORT: Duration = Duration::from_millis(400);
const HOUR: Duration = Duration::from_secs(3600);

fn expiring(deadline: Option<Deadline>, due: Due) -> NewRecord {
    NewRecord { deadline, due, ..record("order-1") }
}

fn is_an_hour(left: Option<Duration>) -> bool {
    left.is_some_and(|left| left > HOUR - Duration::from_secs(60) && left <= HOUR)
}

pub(crate) async fn each_fetch_brings_how_long_until_the_deadline<T: Target>(outbox: &Outbox<T>) {
    let deadlines = [
        None,
        Some(Deadline::After(HOUR)),
        Some(Deadline::At(SystemTime::now() + HOUR)),
        Some(Deadline::After(Duration::ZERO)),
        Some(Deadline::At(SystemTime::now() - HOUR)),
        Some(Deadline::At(SystemTime::UNIX_EPOCH)),
        None,
    ];
    for due in [Due::Now, Due::After(Duration::ZERO)] {
        outbox.schedule(&deadlines.map(|deadline| expiring(deadline, due))).await;
        // One record at a time, because some databases have another statement for one row.
        for deadline in deadlines {
            outbox.schedule(&[expiring(deadline, due)]).await;
        }
    }
    let (from, reach, pick) = (0, i64::MAX, Pick::new(&[], ALL));
    let scan = IdScan {
        partitions: PartitionSet::ALL,
        from,
        reach,
        within: &[],
        list: 0,
        open: &[],
        ahead: None,
        pick,
    };
    let scanned = outbox.store.scan_by_id(scan).await.unwrap().0;
    let mut due = outbox.due().await;
    due.sort_by_key(|record| record.delivery.id);
    for fetched in [outbox.pending().await, scanned, due] {
        let left: Vec<_> = fetched.iter().map(|record| record.delivery.expires_in).collect();
        assert_eq!(left.len(), 14);
        for left in left.chunks(7) {
            assert!(left[0].is_none() && left[6].is_none(), "{left:?}");
            assert!(is_an_hour(left[1]) && is_an_hour(left[2]), "{left:?}");
            assert_eq!(left[3..6], [Some(Duration::ZERO); 3]);
        }
    }
}

pub(crate) async fn a_deadline_of_many_days_comes_back<T: Target>(outbox: &Outbox<T>) {
    let days = HOUR * 24 * 40;
    outbox.schedule(&[expiring(Some(Deadline::After(days)), Due::Now)]).await;
    let left = outbox.pending().await[0].delivery.expires_in.unwrap();
    assert!(left > days - HOUR && left <= days, "{left:?} is not about {days:?}");
}

pub(crate) async fn a_retry_is_due_at_the_deadline_at_the_latest<T: Target>(outbox: &Outbox<T>) {
    let records =
        [Some(SHORT), Some(HOUR), None].map(|deadline| expiring(deadline.map(Deadline::After), Due::Now));
    outbox.schedule(&records).await;
    let ids = outbox.ids_of(&records).await;
    let mut worker = outbox.join().await;
    worker
        .settle([
            (ids[0], 0, retry_after(HOUR)),
            (ids[1], 0, retry_after(SHORT)),
            (ids[2], 0, retry_after(SHORT)),
        ])
        .await;
    tokio::time::sleep(2 * SHORT).await;
    let mut due: Vec<_> = outbox
        .due()
        .await
        .into_iter()
        .map(|record| (record.delivery.id, record.delivery.expires_in))
        .collect();
    due.sort_unstable();
    assert_eq!(due.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    assert_eq!(due[0].1, Some(Duration::ZERO));
    assert!(is_an_hour(due[1].1) && due[2].1.is_none(), "{due:?}");
}

pub(crate) async fn what_has_expired_counts_no_attempt_and_is_repaired_without_a_deadline<T: Target>(
    outbox: &Outbox<T>,
) {
    let records = [HOUR, HOUR].map(|left| expiring(Some(Deadline::After(left)), Due::Now));
    outbox.schedule(&records).await;
    let ids = outbox.ids_of(&records).await;
    let mut worker = outbox.join().await;
    let expired = || Change::Fail { counted: false, error: "expired".to_owned(), lane: OnFailure::Continue };
    worker.settle([(ids[0], 0, expired()), (ids[1], 0, expired())]).await;
    let failed = outbox.store.failed(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(failed.iter().map(|failed| failed.attempts).collect::<Vec<_>>(), [0, 0]);
    assert!(outbox.due().await.is_empty(), "what has failed is not due at its deadline");
    assert!(outbox.store.repair(ids[0], &Repair::Retry).await.unwrap());
    assert!(outbox.store.repair(ids[1], &Repair::Replace(b"{}".to_vec())).await.unwrap());
    let partitions = [Partition::of("order-1")];
    let repaired = outbox.store.fetch_by_partition(&partitions, Pick::new(&[], ALL)).await.unwrap();
    assert_eq!(repaired.iter().map(|record| record.delivery.expires_in).collect::<Vec<_>>(), [None, None]);
}
