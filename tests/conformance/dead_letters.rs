//! Records that have failed for good, moved away with their causes.

use std::collections::BTreeMap;

use keylane::{
    admin::{DeadLetter, Filter},
    inner::{Change, DeadLetterCause, NewRecord},
};

use crate::{
    outbox::{ALL, Outbox, record},
    target::Target,
};

fn cause(error: &str) -> DeadLetterCause {
    let (class, kind) = (Some("kafka-rejected".to_owned()), "error");
    DeadLetterCause { attempts: 3, target: "orders".to_owned(), error: error.to_owned(), class, kind }
}

async fn letters<T: Target>(outbox: &Outbox<T>, filter: &Filter) -> Vec<DeadLetter> {
    outbox.store.dead_letters(filter, 0, ALL).await.unwrap()
}

pub(crate) async fn a_dead_letter_has_its_record_and_its_cause<T: Target>(outbox: &Outbox<T>) {
    let headers = BTreeMap::from([("trace_id".to_owned(), "t".to_owned())]);
    let new = NewRecord { headers, ..record("order-1") };
    outbox.schedule(std::slice::from_ref(&new)).await;
    let id = outbox.ids_of(std::slice::from_ref(&new)).await[0];
    outbox.store.copy_to_dead_letters(id, &cause("too large: é")).await.unwrap();

    let [letter] = &letters(outbox, &Filter::all()).await[..] else { panic!("one letter") };
    assert_eq!((letter.id, letter.event_id), (id, new.event_id));
    assert_eq!((letter.lane.partition, letter.lane.key.as_str()), (new.partition, "order-1"));
    assert_eq!((letter.lane.handler.as_str(), letter.record_type.as_str()), ("bookkeeper", "order.placed"));
    assert_eq!((letter.content_type.as_str(), &letter.payload), ("application/json", &new.payload));
    assert_eq!((&letter.headers, letter.attempts), (&new.headers, 3));
    assert_eq!((letter.target.as_str(), letter.error.as_str()), ("orders", "too large: é"));
    assert_eq!(
        (letter.error_class.as_deref(), letter.error_kind.as_str()),
        (Some("kafka-rejected"), "error")
    );
    assert!(letter.since <= letter.age);
    assert_eq!(outbox.pending_ids("order-1").await, [id], "a settle completes it, not this");
}

pub(crate) async fn a_dead_letter_is_kept_once_and_outlives_its_record<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let no_class = DeadLetterCause { class: None, ..cause("first") };
    outbox.store.copy_to_dead_letters(id, &no_class).await.unwrap();
    outbox.store.copy_to_dead_letters(id, &cause("second")).await.unwrap();
    worker.settle([(id, 0, Change::Complete)]).await;
    outbox.store.copy_to_dead_letters(id, &cause("third")).await.unwrap();
    let found = letters(outbox, &Filter::all()).await;
    let found: Vec<_> = found.iter().map(|letter| (letter.error.as_str(), &letter.error_class)).collect();
    assert_eq!(found, [("first", &None)]);
    outbox.store.copy_to_dead_letters(id + 1, &cause("of nothing")).await.unwrap();
    assert_eq!(letters(outbox, &Filter::all()).await.len(), 1);
}

pub(crate) async fn dead_letters_are_listed_by_filters_and_in_pages<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-1", "order-3"]).await;
    for id in &ids {
        outbox.store.copy_to_dead_letters(*id, &cause("refused")).await.unwrap();
    }
    let of = async |filter: Filter, after, limit| {
        let listed = outbox.store.dead_letters(&filter, after, limit).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|letter| letter.id).collect();
        assert_eq!(outbox.store.dead_letter_ids(&filter, after, limit).await.unwrap(), listed);
        listed
    };
    assert_eq!(of(Filter::all(), 0, ALL).await, ids);
    assert_eq!(of(Filter::all().key("order-1"), 0, ALL).await, [ids[0], ids[2]]);
    assert_eq!(of(Filter::all(), ids[0], 2).await, [ids[1], ids[2]]);
    assert!(of(Filter::all().handler("nobody"), 0, ALL).await.is_empty());
}

pub(crate) async fn dead_letters_are_scheduled_again_in_their_order<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-1"]).await;
    let events: Vec<_> = outbox.pending().await.iter().map(|record| record.delivery.event_id).collect();
    for id in &ids {
        outbox.store.copy_to_dead_letters(*id, &cause("refused")).await.unwrap();
        worker.settle([(*id, 0, Change::Complete)]).await;
    }
    assert_eq!(outbox.store.take_dead_letters(&[ids[2], ids[0], 9_999_999], true).await.unwrap(), 2);
    assert_eq!(outbox.store.take_dead_letters(&ids[1..2], false).await.unwrap(), 1);
    assert_eq!(outbox.store.take_dead_letters(&ids, true).await.unwrap(), 0, "they are gone");
    assert!(letters(outbox, &Filter::all()).await.is_empty());
    let again = outbox.pending().await;
    let found: Vec<_> = again.iter().map(|record| record.delivery.event_id).collect();
    assert_eq!(found, [events[0], events[2]]);
    assert!(again.iter().all(|record| record.delivery.attempt == 1 && record.delivery.id > ids[2]));
}
