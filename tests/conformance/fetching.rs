//! Fetching pending records.

use std::{sync::Arc, time::Duration};

use keylane::{
    inner::{Change, Due, Handlers, IdScan, NewRecord, Pick},
    partition::{Partition, PartitionSet},
};

use crate::{
    outbox::{ALL, Outbox, ids, keys, partition, record},
    target::Target,
};

/// Records of these partitions, whatever their keys hash to.
fn records_in(partitions: &[i64]) -> Vec<NewRecord> {
    let new = |number: &i64| NewRecord { partition: partition(*number), ..record("order-1") };
    partitions.iter().map(new).collect()
}

fn numbers(records: &[Arc<keylane::Record>]) -> Vec<u8> {
    records.iter().map(|record| record.delivery.partition.number()).collect()
}

pub(crate) async fn fetch_of_an_empty_outbox_is_empty<T: Target>(outbox: &Outbox<T>) {
    assert!(outbox.pending().await.is_empty());
    assert!(outbox.store.fetch_by_partition(&[], Pick::new(&[], ALL)).await.unwrap().is_empty());
}

pub(crate) async fn fetch_returns_a_partition_in_id_order<T: Target>(outbox: &Outbox<T>) {
    for _ in 0..3 {
        outbox.schedule(&records_in(&[7, 7, 7])).await;
    }
    let fetched = ids(&outbox.store.fetch_by_partition(&[partition(7)], Pick::new(&[], ALL)).await.unwrap());
    assert_eq!(fetched.len(), 9);
    assert!(fetched.is_sorted(), "{fetched:?}");
}

pub(crate) async fn fetch_takes_the_partitions_in_the_turn_given<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[3, 200, 3, 90, 200])).await;
    let turn = [partition(200), partition(3), partition(90)];
    let fetched = outbox.store.fetch_by_partition(&turn, Pick::new(&[], ALL)).await.unwrap();
    assert_eq!(numbers(&fetched), [200, 200, 3, 3, 90]);
    let heads = fetched.chunk_by(|a, b| a.delivery.partition == b.delivery.partition);
    heads.for_each(|head| assert!(ids(head).is_sorted()));
}

pub(crate) async fn fetch_reads_only_the_partitions_named<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[0, 1, 254, 255])).await;
    let fetched =
        outbox.store.fetch_by_partition(&[partition(0), partition(255)], Pick::new(&[], ALL)).await.unwrap();
    assert_eq!(numbers(&fetched), [0, 255]);
}

pub(crate) async fn fetch_stops_at_its_limit<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[5; 10])).await;
    let all = ids(&outbox.store.fetch_by_partition(&[partition(5)], Pick::new(&[], ALL)).await.unwrap());
    for limit in [1, 4, 10, 11] {
        let fetched =
            ids(&outbox.store.fetch_by_partition(&[partition(5)], Pick::new(&[], limit)).await.unwrap());
        assert_eq!(fetched, all[..limit.min(10)]);
    }
}

pub(crate) async fn fetch_takes_each_partition_from_its_head<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[1, 2, 1, 2, 1, 2])).await;
    let whole =
        outbox.store.fetch_by_partition(&[partition(1), partition(2)], Pick::new(&[], ALL)).await.unwrap();
    for limit in 1..=6 {
        let fetched = outbox
            .store
            .fetch_by_partition(&[partition(1), partition(2)], Pick::new(&[], limit))
            .await
            .unwrap();
        assert_eq!(fetched.len(), limit);
        for number in [1, 2] {
            let of = |records: &[Arc<keylane::Record>]| -> Vec<i64> {
                let own = records.iter().filter(|record| record.delivery.partition == partition(number));
                own.map(|record| record.delivery.id).collect()
            };
            let head = of(&fetched);
            assert_eq!(head, of(&whole)[..head.len()], "not the head of partition {number}");
        }
    }
}

pub(crate) async fn fetch_leaves_out_what_is_skipped<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[9; 5])).await;
    let all = ids(&outbox.store.fetch_by_partition(&[partition(9)], Pick::new(&[], ALL)).await.unwrap());
    let fetched = ids(&outbox
        .store
        .fetch_by_partition(&[partition(9)], Pick::new(&[all[0], all[3]], ALL))
        .await
        .unwrap());
    assert_eq!(fetched, [all[1], all[2], all[4]]);
    assert!(outbox.store.fetch_by_partition(&[partition(9)], Pick::new(&all, ALL)).await.unwrap().is_empty());
}

pub(crate) async fn what_is_skipped_does_not_use_up_the_limit<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[9; 6])).await;
    let all = ids(&outbox.store.fetch_by_partition(&[partition(9)], Pick::new(&[], ALL)).await.unwrap());
    let fetched =
        ids(&outbox.store.fetch_by_partition(&[partition(9)], Pick::new(&all[..4], 2)).await.unwrap());
    assert_eq!(fetched, all[4..]);
}

pub(crate) async fn fetch_starts_at_the_head_every_time<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&records_in(&[4; 3])).await;
    let first = ids(&outbox.store.fetch_by_partition(&[partition(4)], Pick::new(&[], 2)).await.unwrap());
    let again = ids(&outbox.store.fetch_by_partition(&[partition(4)], Pick::new(&[], 2)).await.unwrap());
    assert_eq!(first, again);
}

pub(crate) async fn fetch_sees_what_was_committed_since_the_last_fetch<T: Target>(outbox: &Outbox<T>) {
    // With a snapshot kept from the first fetch, the later records would never be seen.
    for count in 1..=3 {
        outbox.schedule_keys(&["order-1"]).await;
        assert_eq!(outbox.pending().await.len(), count);
    }
}

pub(crate) async fn every_field_comes_back_as_scheduled<T: Target>(outbox: &Outbox<T>) {
    let new = NewRecord {
        handler: "billing:invoice/2".into(),
        record_type: "invoice.sent-v1".into(),
        content_type: "application/cbor".into(),
        payload: vec![1, 2, 3],
        headers: [("trace_id", "4bf92f35"), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..record("order-1")
    };
    outbox.schedule(std::slice::from_ref(&new)).await;
    let fetched = outbox.pending().await.remove(0);
    assert_eq!(fetched.payload, new.payload);
    let delivery = fetched.delivery.clone();
    assert_eq!((delivery.event_id, delivery.partition), (new.event_id, Partition::of("order-1")));
    assert_eq!((delivery.key, delivery.handler), (new.key.into(), new.handler));
    assert_eq!((delivery.record_type, delivery.content_type), (new.record_type, new.content_type));
    assert_eq!((delivery.attempt, delivery.headers), (1, new.headers));
}

pub(crate) async fn one_event_for_three_handlers_is_three_records<T: Target>(outbox: &Outbox<T>) {
    let event = record("order-1");
    let handlers = ["audit", "billing", "mail"];
    outbox.schedule(&handlers.map(|id| NewRecord { handler: id.into(), ..event.clone() })).await;
    let fetched = outbox.pending().await;
    let taken: Vec<&str> = fetched.iter().map(|record| record.delivery.handler.as_str()).collect();
    assert_eq!(taken, handlers);
    assert!(fetched.iter().all(|record| record.delivery.event_id == event.event_id));
}

/// What most records of an insert have in common is sent once.
pub(crate) async fn records_of_one_insert_keep_what_each_has<T: Target>(outbox: &Outbox<T>) {
    let headers = |tenant: &str| [("tenant".to_owned(), tenant.to_owned())].into();
    let plain = record("order-1");
    let new = [
        plain.clone(),
        NewRecord { headers: headers("north"), ..plain.clone() },
        NewRecord { headers: headers("north"), handler: "audit".into(), ..plain.clone() },
        NewRecord { headers: headers("north"), record_type: "order.paid".into(), ..plain.clone() },
        NewRecord { headers: headers("south"), content_type: "application/cbor".into(), ..plain.clone() },
        NewRecord { headers: headers("south"), ..plain.clone() },
        plain.clone(),
        plain,
    ];
    outbox.schedule(&new).await;
    let fetched = outbox.pending().await;
    assert_eq!(fetched.len(), new.len());
    for (fetched, new) in fetched.iter().zip(new) {
        let delivery = fetched.delivery.clone();
        assert_eq!((delivery.handler, delivery.record_type), (new.handler, new.record_type));
        assert_eq!((delivery.content_type, delivery.headers), (new.content_type, new.headers));
    }
}

pub(crate) async fn a_wrong_partition_number_comes_back_as_it_is<T: Target>(outbox: &Outbox<T>) {
    // Delivery compares the partition with the key and quarantines the record.
    let wrong = partition(i64::from(Partition::of("order-1").number() ^ 1));
    outbox.schedule(&[NewRecord { partition: wrong, ..record("order-1") }]).await;
    let fetched = outbox.store.fetch_by_partition(&[wrong], Pick::new(&[], ALL)).await.unwrap();
    assert_eq!((fetched[0].delivery.partition, fetched[0].delivery.key.as_str()), (wrong, "order-1"));
    assert!(outbox.pending_ids("order-1").await.is_empty());
}

pub(crate) async fn two_outboxes_on_one_database_do_not_meet<T: Target>(outbox: &Outbox<T>) {
    let other = outbox.beside();
    other.store.migrate().await.unwrap();
    outbox.schedule_keys(&["order-1"]).await;
    other.schedule_keys(&["order-2", "order-3"]).await;
    assert_eq!(keys(&outbox.pending().await), ["order-1"]);
    assert_eq!(other.pending().await.len(), 2);
    let mut worker = outbox.join().await;
    assert!(other.store.view().await.unwrap().members.is_empty());
    let foreign = ids(&other.pending().await)[1];
    worker.settle([(foreign + 100, 0, Change::Complete)]).await;
    assert_eq!(other.pending().await.len(), 2);
}

/// Each kind of fetch leaves out the handlers that are fetched separately, and can fetch one handler
/// separately.
pub(crate) async fn a_fetch_brings_the_handlers_asked_for<T: Target>(outbox: &Outbox<T>) {
    let of = |handler: &str, due| NewRecord { handler: handler.into(), due, ..record("order-1") };
    let handlers = ["a", "b:c/d", "a", "e", "b:c/d"];
    outbox.schedule(&handlers.map(|handler| of(handler, Due::Now))).await;
    outbox.schedule(&handlers.map(|handler| of(handler, Due::After(Duration::ZERO)))).await;
    let all = outbox.pending().await;
    let names = |records: &[Arc<keylane::Record>]| -> Vec<String> {
        records.iter().map(|record| record.delivery.handler.to_string()).collect()
    };
    let only = Handlers::Only("b:c/d".into());
    let except = Handlers::Except(vec!["a".into(), "b:c/d".into()]);
    for (handlers, expected) in
        [(only, vec!["b:c/d", "b:c/d"]), (except, vec!["e"]), (Handlers::Every, handlers.to_vec())]
    {
        let pick = Pick { skip: &[], handlers: &handlers, limit: ALL };
        let partitions = [Partition::of("order-1")];
        let fetched = outbox.store.fetch_by_partition(&partitions, pick).await.unwrap();
        assert_eq!(names(&fetched), expected, "by partition, {handlers:?}");
        let due = outbox.store.fetch_due(PartitionSet::ALL, pick).await.unwrap().0;
        let mut due = names(&due);
        due.sort_unstable();
        let mut sorted = expected.clone();
        sorted.sort_unstable();
        assert_eq!(due, sorted, "due, {handlers:?}");
        let first = all[0].delivery.id;
        let scan = IdScan {
            partitions: PartitionSet::ALL,
            from: first,
            reach: 4_096,
            within: &[],
            list: 0,
            open: &[],
            ahead: None,
            pick,
        };
        assert_eq!(names(&outbox.store.scan_by_id(scan).await.unwrap().0), expected, "by id, {handlers:?}");
        // A database without numbers of transactions adds the records below, and only those.
        let scan = IdScan { from: first + 1_000, ..scan };
        let (below, horizon) = outbox.store.scan_by_id(scan).await.unwrap();
        let adds = horizon.open_from().is_none() && !below.is_empty();
        assert!(!adds || names(&below) == expected, "below, {handlers:?}: {below:?}");
    }
}
