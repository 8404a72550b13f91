//! The work of people: listing stopped lanes, repairing failed records, purging.

use std::time::Duration;

use keylane::{
    Completed, OnFailure, RecordId,
    admin::{Filter, Status, StopReason},
    database::ErrorClass,
    inner::{Change, Repair},
};

use crate::{
    outbox::{Outbox, a_moment, due_record, record, retry_after, settlement, stop},
    target::{SqlTarget, Target},
};

const HOUR: Duration = Duration::from_secs(3600);

fn block() -> Change {
    Change::Fail { counted: true, error: "spent".to_owned(), lane: OnFailure::Block }
}

/// A blocked lane of `order-1`: the failed record, and two records held behind it.
async fn blocked<T: Target>(outbox: &Outbox<T>) -> (RecordId, Vec<RecordId>) {
    let ids = outbox.schedule_keys(&["order-1"; 3]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, retry_after(Duration::ZERO))]).await;
    worker.settle([(ids[0], 1, block())]).await;
    let hold = |id| (id, 0, Change::Hold { behind: ids[0] });
    assert_eq!(worker.settle([hold(ids[1]), hold(ids[2])]).await.held, 2);
    (ids[0], ids[1..].to_vec())
}

pub(crate) async fn a_failed_record_is_retried_from_the_first_attempt<T: Target>(outbox: &Outbox<T>) {
    let (failed, held) = blocked(outbox).await;
    assert!(outbox.store.repair(failed, &Repair::Retry).await.unwrap());
    assert_eq!(outbox.pending_ids("order-1").await, [vec![failed], held].concat());
    assert_eq!(outbox.pending().await[0].delivery.attempt, 1);
    assert!(outbox.stops().await.is_empty());
    assert!(outbox.store.failed(&Filter::all(), 0, 10).await.unwrap().is_empty());
}

pub(crate) async fn a_failed_record_is_retried_with_another_payload<T: Target>(outbox: &Outbox<T>) {
    let (failed, held) = blocked(outbox).await;
    let payload = vec![0, 159, 146, 150, 0];
    assert!(outbox.store.repair(failed, &Repair::Replace(payload.clone())).await.unwrap());
    assert_eq!(outbox.pending_ids("order-1").await, [vec![failed], held].concat());
    let repaired = outbox.pending().await.remove(0);
    assert_eq!((&repaired.payload, repaired.delivery.attempt), (&payload, 1));
}

pub(crate) async fn a_discarded_record_is_gone_and_its_lane_goes_on<T: Target>(outbox: &Outbox<T>) {
    let (failed, held) = blocked(outbox).await;
    assert!(outbox.store.repair(failed, &Repair::Discard).await.unwrap());
    assert_eq!(outbox.pending_ids("order-1").await, held);
    assert!(outbox.stops().await.is_empty());
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Failed), 0);
}

pub(crate) async fn only_failed_records_are_repaired<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-2"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop()), (ids[1], 0, Change::Hold { behind: ids[0] })]).await;
    for id in [ids[0], ids[1], ids[2], ids[2] + 999] {
        for repair in [Repair::Retry, Repair::Replace(vec![1]), Repair::Discard] {
            assert!(!outbox.store.repair(id, &repair).await.unwrap(), "{repair:?}");
        }
    }
    assert_eq!(outbox.stops().await.len(), 1);
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn a_record_is_repaired_once<T: Target>(outbox: &Outbox<T>) {
    let (failed, _) = blocked(outbox).await;
    let second_store = outbox.store_that(Completed::Delete);
    let (one, other) = tokio::join!(
        outbox.store.repair(failed, &Repair::Retry),
        second_store.repair(failed, &Repair::Discard)
    );
    assert!(one.unwrap() ^ other.unwrap(), "exactly one of two people repairs it");
    assert!(outbox.pending().await.len() >= 2);
}

pub(crate) async fn a_failure_that_continued_can_be_repaired_too<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    let error = "spent".to_owned();
    worker.settle([(id, 0, Change::Fail { counted: true, error, lane: OnFailure::Continue })]).await;
    assert!(outbox.store.repair(id, &Repair::Retry).await.unwrap());
    assert_eq!(outbox.pending_ids("order-1").await, [id]);
}

pub(crate) async fn records_are_counted_by_status<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-2", "order-3", "order-4"]).await;
    outbox.schedule(&[due_record("order-5", keylane::inner::Due::After(HOUR))]).await;
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    let hold = Change::Hold { behind: ids[0] };
    worker.settle([(ids[0], 0, stop()), (ids[1], 0, hold), (ids[2], 0, block())]).await;
    worker.settle([(ids[3], 0, Change::Complete)]).await;
    let counts = outbox.store.counts().await.unwrap();
    let by_status = Status::ALL.map(|status| counts.of(status));
    assert_eq!(by_status, [1, 1, 1, 1, 2], "pending, completed, failed, held, delayed");
    let mut lanes = counts.stopped_lanes;
    lanes.sort_unstable();
    assert_eq!(lanes, [(StopReason::Retrying, 1), (StopReason::Blocked, 1)]);
}

pub(crate) async fn stopped_lanes_say_what_stops_them<T: Target>(outbox: &Outbox<T>) {
    let new = record("order-1");
    outbox.schedule(std::slice::from_ref(&new)).await;
    let id = outbox.pending_ids("order-1").await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, stop())]).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((lane.lane.key.as_str(), lane.lane.handler.as_str()), ("order-1", "bookkeeper"));
    assert_eq!((lane.reason, lane.record, lane.attempts, lane.held), (StopReason::Retrying, id, 1, 0));
    assert_eq!((lane.event_id, lane.record_type.as_deref()), (Some(new.event_id), Some("order.placed")));
    assert_eq!(lane.last_error.as_deref(), Some("refused"));
    assert!(
        lane.since >= Duration::from_millis(25) && lane.since < Duration::from_secs(60),
        "{:?}",
        lane.since
    );
}

pub(crate) async fn a_lane_whose_record_is_gone_is_still_listed<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, stop())]).await;
    worker.settle([(id, 1, Change::Complete)]).await;
    let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((lane.record, lane.event_id, lane.record_type, lane.attempts), (id, None, None, 0));
}

pub(crate) async fn stopped_lanes_and_failures_are_listed_in_pages<T: Target>(outbox: &Outbox<T>) {
    let keys: Vec<String> = (0..7).map(|n| format!("order-{n}")).collect();
    let ids = outbox.schedule_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut worker = outbox.join().await;
    worker.settle_all(ids.iter().map(|id| settlement((*id, 0, block()))).collect()).await;
    let (mut lanes, mut failed) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let page =
            outbox.store.stopped_lanes(&Filter::all(), lanes.last().copied().unwrap_or(0), 2).await.unwrap();
        lanes.extend(page.iter().map(|lane| lane.record));
        let page = outbox.store.failed(&Filter::all(), failed.last().copied().unwrap_or(0), 2).await.unwrap();
        failed.extend(page.iter().map(|record| record.id));
    }
    assert_eq!(lanes, ids);
    assert_eq!(failed, ids);
    assert!(outbox.store.failed(&Filter::all(), ids[6], 2).await.unwrap().is_empty());
}

pub(crate) async fn failed_records_are_listed_with_their_event<T: Target>(outbox: &Outbox<T>) {
    let new = record("order-1");
    outbox.schedule(std::slice::from_ref(&new)).await;
    let id = outbox.pending_ids("order-1").await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, block())]).await;
    let failed = outbox.store.failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((failed.id, failed.event_id, failed.attempts), (id, new.event_id, 1));
    assert_eq!((failed.lane.key, failed.lane.handler), (new.key.into(), new.handler));
    assert_eq!((failed.lane.partition, failed.record_type), (new.partition, new.record_type.to_string()));
    assert_eq!(failed.last_error.as_deref(), Some("spent"));
}

pub(crate) async fn kept_records_are_purged_by_age<T: Target>(outbox: &Outbox<T>) {
    purge(outbox, Completed::Keep).await;
}

pub(crate) async fn archived_records_are_purged_by_age<T: Target>(outbox: &Outbox<T>) {
    purge(outbox, Completed::Archive).await;
}

async fn purge<T: Target>(outbox: &Outbox<T>, completed: Completed) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    let mut worker = outbox.join().await.over(outbox.store_that(completed));
    worker.settle([(ids[0], 0, Change::Complete)]).await;
    // The database's clock may count whole milliseconds only.
    a_moment().await;
    let between = tokio::time::Instant::now();
    let pause = Duration::from_secs(1);
    tokio::time::sleep(pause).await;
    worker.settle([(ids[1], 0, Change::Complete)]).await;
    assert_eq!(outbox.store.purge(HOUR, HOUR).await.unwrap(), 0);
    let age = between.elapsed();
    let older = outbox.store.purge(age, HOUR).await.unwrap();
    // A purge that reached the database a whole pause late has found the second row old enough, too.
    let late = between.elapsed() - age >= pause;
    assert!(older == 1 || late && older == 2, "{older} were purged");
    a_moment().await;
    assert_eq!(older + outbox.store.purge(Duration::ZERO, HOUR).await.unwrap(), 2);
    assert_eq!(outbox.pending().await.len(), 1, "what is not completed stays");
}

pub(crate) async fn purge_takes_nothing_that_is_not_done<T: Target>(outbox: &Outbox<T>) {
    let (_, held) = blocked(outbox).await;
    outbox.schedule_keys(&["order-2"]).await;
    outbox.schedule(&[due_record("order-3", keylane::inner::Due::After(HOUR))]).await;
    a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::ZERO).await.unwrap(), 0);
    let counts = outbox.store.counts().await.unwrap();
    assert_eq!(Status::ALL.map(|status| counts.of(status)), [1, 0, 1, held.len() as u64, 1]);
}

/// A list without such lanes would hide them from people.
pub(crate) async fn a_lane_of_an_unknown_reason_is_told<T: SqlTarget>(outbox: &Outbox<T>) {
    blocked(outbox).await;
    outbox.execute("UPDATE {outbox}lane SET reason = 'asleep'").await;
    let lanes = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap_err();
    let counts = outbox.store.counts().await.unwrap_err();
    for error in [lanes, counts] {
        assert_eq!(error.class, ErrorClass::Setup);
        assert!(
            error.to_string().contains("the reason \"asleep\", which this build does not know"),
            "{error}"
        );
    }
}
