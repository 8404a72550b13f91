//! The lists for people, in pages and with filters; and repairs of many records at once.

use std::time::Duration;

use keylane::{
    Name, OnFailure, RecordId,
    admin::{Filter, Generation, Instance, InstanceState, Status},
    inner::{Change, NewInstance, NewRecord, Repair},
    partition::Partition,
};

use crate::{
    outbox::{ALL, Outbox, a_moment, ids, neighbours, partition, record, stop},
    target::Target,
};

fn fails(lane: OnFailure) -> Change {
    Change::Fail { counted: true, error: "spent".to_owned(), lane }
}

pub(crate) async fn instances_are_listed_with_their_partitions<T: Target>(outbox: &Outbox<T>) {
    let (first, left, dead) = (outbox.join().await, outbox.join().await, outbox.join().await);
    let (name, version) = ("books-7".to_owned(), "9.8.7".to_owned());
    let named = NewInstance { id: keylane::admin::InstanceId::generate(), name, version, fence_rows: 1 };
    outbox.store.join(&named).await.unwrap();
    let wanted = [(partition(3), Generation(0)), (partition(7), Generation(0))];
    outbox.store.claim(first.id, &wanted).await.unwrap();
    a_moment().await;
    outbox.store.beat(first.id).await.unwrap();
    outbox.store.leave(left.id).await.unwrap();
    assert!(outbox.store.evict(dead.id, None).await.unwrap());
    assert!(outbox.store.drain(named.id).await.unwrap());
    assert!(!outbox.store.drain(named.id).await.unwrap(), "it drains already");
    assert!(!outbox.store.drain(left.id).await.unwrap(), "it has ended");
    let all = outbox.store.instances(10).await.unwrap();
    let state = |instance: &Instance| (instance.id, instance.state, instance.partitions);
    let states: Vec<_> = all.iter().map(state).collect();
    let expected = [
        (named.id, InstanceState::Draining, 0),
        (first.id, InstanceState::Active, 2),
        (dead.id, InstanceState::Dead, 0),
        (left.id, InstanceState::Stopped, 0),
    ];
    assert_eq!(states, expected, "the living first, then the latest first");
    assert_eq!((&*all[0].name, &*all[0].version), ("books-7", "9.8.7"));
    let ages = (all[1].started, all[1].last_beat);
    assert!(ages.0 > ages.1 && ages.0 < Duration::from_secs(60), "{ages:?}");
    assert_eq!(outbox.store.instances(1).await.unwrap().len(), 1);
}

pub(crate) async fn partitions_are_listed_with_their_owners<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let claimed = outbox.store.claim(worker.id, &[(partition(9), Generation(0))]).await.unwrap();
    let all = outbox.store.partitions().await.unwrap();
    let numbers: Vec<Partition> = all.iter().map(|row| row.partition).collect();
    assert_eq!(numbers, Partition::all().collect::<Vec<_>>());
    let owned = &all[9];
    assert_eq!((owned.owner, owned.generation), (Some(worker.id), claimed[0].1));
    assert!(owned.claimed.is_some_and(|ago| ago < Duration::from_secs(60)), "{:?}", owned.claimed);
    assert_eq!((all[8].owner, all[8].generation, all[8].claimed), (None, Generation(0), None));
    outbox.store.release(worker.id, &claimed).await.unwrap();
    assert_eq!(outbox.store.partitions().await.unwrap()[9].owner, None);
}

pub(crate) async fn a_failed_record_is_shown_with_all_that_it_carries<T: Target>(outbox: &Outbox<T>) {
    let headers = [("trace_id".to_owned(), "4bf9".to_owned())].into();
    let payload = vec![0, 159, 146, 150, 0];
    let content_type = Name::from("image/png");
    let new = NewRecord { headers, payload, content_type, ..record("order-1") };
    outbox.schedule(std::slice::from_ref(&new)).await;
    let id = outbox.pending_ids("order-1").await[0];
    outbox.join().await.settle([(id, 0, fails(OnFailure::Block))]).await;
    let shown = outbox.store.failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((shown.id, shown.event_id, shown.attempts), (id, new.event_id, 1));
    assert_eq!((&shown.payload, &*shown.content_type), (&new.payload, &*new.content_type));
    assert_eq!((&shown.headers, shown.last_error.as_deref()), (&new.headers, Some("spent")));
    assert_eq!((&*shown.lane.key, &*shown.record_type), ("order-1", "order.placed"));
    assert!(shown.age < Duration::from_secs(60), "{:?}", shown.age);
    let text = format!("{shown:?}");
    assert!(!text.contains("order-1") && !text.contains("4bf9") && !text.contains("159"), "{text}");
}

/// Two handlers for each of three keys, two of the keys in one partition: all six records have failed and
/// block their lanes.
async fn six_failures<T: Target>(outbox: &Outbox<T>) -> (String, String, Vec<RecordId>) {
    let (one, other) = neighbours();
    let of = |key: &str, handler: &str| NewRecord { handler: handler.into(), ..record(key) };
    let keys = [&*one, &*other, "elsewhere"];
    let new: Vec<NewRecord> = keys.iter().flat_map(|key| ["books", "mail"].map(|id| of(key, id))).collect();
    outbox.schedule(&new).await;
    let ids = outbox.ids_of(&new).await;
    let mut worker = outbox.join().await;
    for id in &ids {
        worker.settle([(*id, 0, fails(OnFailure::Block))]).await;
    }
    (one, other, ids)
}

pub(crate) async fn filters_find_by_handler_key_and_partition<T: Target>(outbox: &Outbox<T>) {
    let (one, other, ids) = six_failures(outbox).await;
    let of_neighbours = Filter::all().partition(Partition::of(&one));
    let cases = [
        (Filter::all(), vec![0, 1, 2, 3, 4, 5]),
        (Filter::all().handler("mail"), vec![1, 3, 5]),
        (Filter::all().key(&*other), vec![2, 3]),
        (Filter::all().key(&*other).handler("books"), vec![2]),
        (of_neighbours.clone(), vec![0, 1, 2, 3]),
        (of_neighbours.clone().handler("books"), vec![0, 2]),
        (of_neighbours.key("elsewhere"), vec![]),
        (Filter::all().key("nobody"), vec![]),
    ];
    for (filter, expected) in cases {
        let expected: Vec<RecordId> = expected.into_iter().map(|at: usize| ids[at]).collect();
        let failed = outbox.store.failed(&filter, 0, ALL).await.unwrap();
        assert_eq!(failed.iter().map(|record| record.id).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(outbox.store.failed_ids(&filter, 0, ALL).await.unwrap(), expected, "{filter:?}");
        let lanes = outbox.store.stopped_lanes(&filter, 0, ALL).await.unwrap();
        assert_eq!(lanes.iter().map(|lane| lane.record).collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub(crate) async fn pages_of_a_filter_follow_one_another<T: Target>(outbox: &Outbox<T>) {
    let (_, _, ids) = six_failures(outbox).await;
    let filter = Filter::all().handler("books");
    let first = outbox.store.failed_ids(&filter, 0, 2).await.unwrap();
    assert_eq!(first, [ids[0], ids[2]]);
    assert_eq!(outbox.store.failed_ids(&filter, first[1], 2).await.unwrap(), [ids[4]]);
    assert!(outbox.store.failed_ids(&filter, ids[4], 2).await.unwrap().is_empty());
}

pub(crate) async fn many_are_repaired_at_once<T: Target>(outbox: &Outbox<T>) {
    for repair in [Repair::Retry, Repair::Discard] {
        let (one, _, failed) = six_failures(outbox).await;
        let held = NewRecord { handler: "books".into(), ..record(&one) };
        outbox.schedule(std::slice::from_ref(&held)).await;
        let held = outbox.ids_of(&[held]).await[0];
        outbox.join().await.settle([(held, 0, Change::Hold { behind: failed[0] })]).await;
        assert_eq!(outbox.store.repair_all(&failed, &repair).await.unwrap(), 6);
        assert_eq!(outbox.store.repair_all(&failed, &repair).await.unwrap(), 0, "each is repaired once");
        assert!(outbox.stops().await.is_empty());
        let pending = outbox.pending().await;
        let returned = if repair == Repair::Retry { 7 } else { 1 };
        assert_eq!(pending.len(), returned, "{repair:?}, and the one that was held");
        let mut worker = outbox.join().await;
        for id in ids(&pending) {
            worker.settle([(id, 0, Change::Complete)]).await;
        }
    }
}

pub(crate) async fn repairing_many_leaves_others_as_they_are<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop()), (ids[1], 0, fails(OnFailure::Block))]).await;
    let named = [ids[0], ids[1], ids[2], ids[2] + 999];
    assert_eq!(outbox.store.repair_all(&named, &Repair::Retry).await.unwrap(), 1);
    let stopped: Vec<RecordId> = outbox.stops().await.iter().map(|stop| stop.record).collect();
    assert_eq!(stopped, [ids[0]], "a lane whose record is retried by the workers stands still as before");
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Pending), 2);
}
