//! Keys, payloads, headers and error texts come back as they were given.

use std::time::Duration;

use keylane::{
    OnFailure,
    admin::Filter,
    inner::{Change, NewRecord, Pick},
    partition::Partition,
};

use crate::{
    outbox::{ALL, Outbox, keys, partition, record, stop},
    target::Target,
};

/// Schedules records of these keys in one partition, so that only the keys tell the lanes apart.
async fn one_partition<T: Target>(outbox: &Outbox<T>, of: &[&str]) -> Vec<i64> {
    let records: Vec<NewRecord> =
        of.iter().map(|key| NewRecord { partition: partition(1), ..record(key) }).collect();
    outbox.schedule(&records).await;
    outbox.ids_of(&records).await
}

/// Stops the lanes of all keys, holds a record behind each, and releases the first lane.
async fn lanes_are_apart<T: Target>(outbox: &Outbox<T>, of: &[&str]) {
    let heads = one_partition(outbox, of).await;
    let tails = one_partition(outbox, of).await;
    let mut worker = outbox.join().await;
    let stops = heads.iter().map(|id| crate::outbox::settlement((*id, 0, stop()))).collect();
    assert_eq!(worker.settle_all(stops).await.applied, of.len());
    let hold =
        |(id, behind): (&i64, &i64)| crate::outbox::settlement((*id, 0, Change::Hold { behind: *behind }));
    let holds = tails.iter().zip(&heads).map(hold).collect();
    assert_eq!(worker.settle_all(holds).await.held, of.len());
    assert_eq!(outbox.stops().await.len(), of.len());
    worker.settle([(heads[0], 1, Change::CompleteAndResume)]).await;
    assert_eq!(keys(&outbox.pending().await), of[..1], "only the lane of the first key goes on");
    assert_eq!(outbox.stops().await.len(), of.len() - 1);
}

pub(crate) async fn keys_that_differ_in_case_or_blanks_are_lanes_of_their_own<T: Target>(outbox: &Outbox<T>) {
    lanes_are_apart(outbox, &["a", "A", "a ", " a", "a\t"]).await;
}

pub(crate) async fn keys_that_differ_in_accents_are_lanes_of_their_own<T: Target>(outbox: &Outbox<T>) {
    lanes_are_apart(outbox, &["e", "é", "e\u{301}", "ß", "ss", "ſ"]).await;
}

pub(crate) async fn handlers_of_one_key_are_lanes_of_their_own<T: Target>(outbox: &Outbox<T>) {
    let [first, second, third] =
        ["mail", "Mail", "mail-2"].map(|id| NewRecord { handler: id.into(), ..record("order-1") });
    outbox.schedule(&[first.clone(), second.clone(), third.clone()]).await;
    let heads = outbox.ids_of(&[first.clone(), second]).await;
    let tail = NewRecord { event_id: uuid::Uuid::now_v7(), ..first };
    outbox.schedule(std::slice::from_ref(&tail)).await;
    let tail = outbox.ids_of(&[tail]).await[0];
    let mut worker = outbox.join().await;
    worker.settle([(heads[0], 0, stop()), (heads[1], 0, stop())]).await;
    worker.settle([(tail, 0, Change::Hold { behind: heads[0] })]).await;
    worker.settle([(heads[1], 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending().await.len(), 1, "only the third handler's record is pending");
    worker.settle([(heads[0], 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending().await.len(), 2);
}

pub(crate) async fn a_key_of_255_bytes_goes_all_the_way<T: Target>(outbox: &Outbox<T>) {
    let plain = "k".repeat(255);
    let wide = "🛩".repeat(63) + "abc";
    assert_eq!(wide.len(), 255);
    lanes_are_apart(outbox, &[&plain, &wide]).await;
}

pub(crate) async fn four_byte_characters_come_back<T: Target>(outbox: &Outbox<T>) {
    let key = "кафе-🛩️-𝔘𝔫𝔦-日本";
    let headers = [("origin".to_owned(), "München ✈ 🗼".to_owned()), ("日本".to_owned(), "🇯🇵".to_owned())];
    let payload = "\"🛩️\"".as_bytes().to_vec();
    let new = NewRecord { payload: payload.clone(), headers: headers.clone().into(), ..record(key) };
    outbox.schedule(&[new]).await;
    let fetched = outbox.pending().await.remove(0);
    assert_eq!(fetched.delivery.key, key);
    assert_eq!(fetched.delivery.partition, Partition::of(key));
    assert_eq!(fetched.delivery.headers, headers.into());
    assert_eq!(fetched.payload, payload);
}

pub(crate) async fn keys_that_look_like_sql_come_back<T: Target>(outbox: &Outbox<T>) {
    let of = ["'; DROP TABLE x; --", "a\"b", "a`b", "a\\b", "%", "_", "$1", "?", "{outbox}", "{ids}"];
    lanes_are_apart(outbox, &of).await;
}

pub(crate) async fn headers_come_back_exactly<T: Target>(outbox: &Outbox<T>) {
    let pairs = [
        ("quote", "say \"yes\""),
        ("apostrophe", "it's"),
        ("backslash", "C:\\temp\\n"),
        ("lines", "one\ntwo\r\nthree\ttab"),
        ("empty", ""),
        ("", "empty name"),
        ("long", &"x".repeat(20_000)),
    ];
    let headers: keylane::handler::Headers = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    outbox.schedule(&[NewRecord { headers: headers.clone(), ..record("order-1") }]).await;
    assert_eq!(outbox.pending().await[0].delivery.headers, headers);
}

async fn payload_comes_back<T: Target>(outbox: &Outbox<T>, payload: Vec<u8>) {
    // One record alone, then two among others: stores insert one record and several by different statements.
    let new = || NewRecord { payload: payload.clone(), ..record("order-1") };
    outbox.schedule(&[new()]).await;
    outbox.schedule(&[new(), new()]).await;
    let fetched =
        outbox.store.fetch_by_partition(&[Partition::of("order-1")], Pick::new(&[], ALL)).await.unwrap();
    assert_eq!(fetched.len(), 3);
    assert!(fetched.iter().all(|record| record.payload == payload));
}

pub(crate) async fn an_empty_payload_comes_back<T: Target>(outbox: &Outbox<T>) {
    payload_comes_back(outbox, Vec::new()).await;
}

pub(crate) async fn a_payload_of_all_bytes_comes_back<T: Target>(outbox: &Outbox<T>) {
    let all: Vec<u8> = (0..=255).collect();
    payload_comes_back(outbox, [all.clone(), vec![0; 3], all].concat()).await;
}

pub(crate) async fn a_payload_of_a_mebibyte_comes_back<T: Target>(outbox: &Outbox<T>) {
    payload_comes_back(outbox, (0..1_u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect()).await;
}

pub(crate) async fn error_texts_come_back_exactly<T: Target>(outbox: &Outbox<T>) {
    let text = "déjà vu: \"x\" 'y' \\ % {ids} $1 ? 🛩️ ".repeat(20);
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let mut worker = outbox.join().await;
    let error = || text.clone();
    worker
        .settle([
            (ids[0], 0, Change::Fail { counted: true, error: error(), lane: OnFailure::Continue }),
            (ids[1], 0, Change::Retry { delay: Duration::ZERO, error: error(), stop: true, counted: true }),
        ])
        .await;
    assert_eq!(outbox.store.failed(&Filter::all(), 0, 10).await.unwrap()[0].last_error, Some(text.clone()));
    assert_eq!(outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap()[0].last_error, Some(text));
}
