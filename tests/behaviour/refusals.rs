//! The refusals of `schedule`: before any write, with the value, the limit and the remedy.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use keylane::{
    OrderLevel, Outbox, OutboxEvent, RawEvent, RetryPolicy, ScheduleError, ScheduleOptions, admin::Status,
    handler::OnUndecodable,
};
use serde::{Deserialize, Serialize};

use crate::{
    ledger::{Ledger, placed, run_of},
    stage::{Stage, until_count, until_empty},
    target::{Connection, SqlTarget},
    user::User,
};

fn raw(record_type: &str, key: &str, content_type: &str, bytes: usize) -> RawEvent {
    RawEvent::new(record_type, key, vec![b'x'; bytes]).content_type(content_type)
}

fn order(key: &str, bytes: usize) -> RawEvent {
    raw("order.placed", key, "text/plain", bytes)
}

async fn refuse<T: User>(
    outbox: &Outbox<T::Db>,
    conn: &mut Connection<T>,
    event: RawEvent,
    options: ScheduleOptions,
    sentence: &str,
) {
    let error = outbox.schedule_raw(conn, event, options).await.unwrap_err();
    assert_eq!(error.to_string(), sentence, "{error:?}");
}

/// A refused call, and the sentence of its error.
type Refused = (RawEvent, ScheduleOptions, String);

fn bad_keys_and_sizes() -> Vec<Refused> {
    let new = ScheduleOptions::new;
    let long_key = "\u{e4}".repeat(128);
    vec![
        (
            order("", 1),
            new(),
            "record key is empty: give what must stay in order, such as order-42".to_owned(),
        ),
        (
            order(&long_key, 1),
            new(),
            "record key has 256 bytes, the limit is 255: shorten it or hash its tail".to_owned(),
        ),
        (
            order("order\0-1", 1),
            new(),
            "record key has a NUL character at byte 5, which databases cannot store in text: take it out"
                .to_owned(),
        ),
        (
            order("order-1", 1001),
            new(),
            "payload has 1001 bytes, the limit is 1000 (schedule.max_payload_bytes): store it elsewhere and \
             send its address, or raise the limit"
                .to_owned(),
        ),
        (
            order("order-1", 1),
            new().header("a", "x".repeat(10)).header("bb", "x".repeat(8)),
            "headers have 21 bytes, the limit is 20 (schedule.max_header_bytes)".to_owned(),
        ),
    ]
}

fn bad_names() -> Vec<Refused> {
    let new = ScheduleOptions::new;
    let long_name = "t".repeat(129);
    vec![
        (
            raw("order placed", "order-1", "text/plain", 1),
            new(),
            "record type \"order placed\" is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : /"
                .to_owned(),
        ),
        (
            raw(&long_name, "order-1", "text/plain", 1),
            new(),
            format!(
                "record type {long_name:?} is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : /"
            ),
        ),
        (
            raw("order.returned", "order-1", "text/plain", 1),
            new(),
            "no handler takes record type \"order.returned\": register one and start it once, so that \
             outbox_handler lists it; nothing was scheduled"
                .to_owned(),
        ),
        (
            raw("order.placed", "order-1", "", 1),
            new(),
            "content type \"\" is not valid: it needs 1 to 128 bytes of printable ASCII, such as \
             application/json"
                .to_owned(),
        ),
        (
            order("order-1", 1),
            new().dedup_key(""),
            "dedup key has 0 bytes; it needs 1 to 255 without NUL".to_owned(),
        ),
        (
            order("order-1", 1),
            new().dedup_key("d".repeat(256)),
            "dedup key has 256 bytes; it needs 1 to 255 without NUL".to_owned(),
        ),
        (
            order("order-1", 1),
            new().dedup_key("a\0b"),
            "dedup key has 3 bytes; it needs 1 to 255 without NUL".to_owned(),
        ),
    ]
}

/// All refusals in one transaction, which stays usable and keeps its other writes.
pub(crate) async fn a_refusal_leaves_the_transaction_as_it_was<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.schedule.max_payload_bytes = 1000;
    config.schedule.max_header_bytes = 20;
    let builder = stage.builder().await.config(config);
    let policy = RetryPolicy::default().undecodable(OnUndecodable::Fail);
    let outbox = builder.handler(ledger.keeper("bookkeeper").retry(policy)).build().await.unwrap();
    let new = ScheduleOptions::new;
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    for (event, options, sentence) in bad_keys_and_sizes().into_iter().chain(bad_names()) {
        refuse::<T>(&outbox, &mut work, event, options, &sentence).await;
    }
    // At the limit, each value is accepted.
    let (key, headers) = ("k".repeat(255), new().header("a", "x".repeat(10)).header("b", "x".repeat(8)));
    outbox.schedule_raw(&mut work, order(&key, 1000), headers).await.unwrap();
    T::commit(work).await;
    until_count(&outbox, Status::Pending, 2).await;
    let running = outbox.start().await.unwrap();
    ledger.until_done(1).await;
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
}

pub(crate) async fn one_bad_event_of_many_writes_none<T: User>(stage: &Stage<T>) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let mut events = run_of("order-1", 2000);
    events.push(placed("", 1));
    let mut work = T::begin(&stage.pool).await;
    let error = outbox.schedule_all(&mut work, &events).await.unwrap_err();
    assert!(matches!(error, ScheduleError::EmptyKey), "{error:?}");
    T::commit(work).await;
    until_empty(&outbox).await;
}

/// JSON has no keys that are pairs.
#[derive(Serialize, Deserialize)]
struct Board(BTreeMap<(u8, u8), char>);

impl OutboxEvent for Board {
    const RECORD_TYPE: &'static str = "order.placed";

    fn key(&self) -> Cow<'_, str> {
        "board".into()
    }
}

pub(crate) async fn an_event_that_is_no_json_is_refused<T: User>(stage: &Stage<T>) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let error = outbox.schedule(&mut work, &Board(BTreeMap::from([((1, 2), 'x')]))).await.unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with("event could not be encoded as JSON: ") && told.contains("string"), "{told}");
    T::commit(work).await;
    until_empty(&outbox).await;
}

pub(crate) async fn a_due_time_out_of_range_is_refused<T: User>(stage: &Stage<T>) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let mut work = T::begin(&stage.pool).await;
    let error = outbox.schedule_after(&mut work, &placed("order-1", 1), Duration::MAX).await.unwrap_err();
    let ScheduleError::Store(error) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("the due time is out of range"), "{error}");
    let forever = ScheduleOptions::new().expires_after(Duration::MAX);
    let error = outbox.schedule_with(&mut work, &placed("order-1", 1), forever).await.unwrap_err();
    assert!(error.to_string().contains("the deadline is out of range"), "{error}");
    T::commit(work).await;
    until_empty(&outbox).await;
}

pub(crate) async fn too_many_keys_for_the_strict_order_are_refused<T: User>(stage: &Stage<T>) {
    let mut config = stage.config.clone();
    config.schedule.order = OrderLevel::Strict;
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    let events: Vec<_> = (0..4097).map(|key| placed(&format!("order-{key}"), 1)).collect();
    let mut work = T::begin(&stage.pool).await;
    let error = outbox.schedule_all(&mut work, &events).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "4097 distinct keys in one call, the limit is 4096 with schedule.order = \"strict\": split the call"
    );
    T::commit(work).await;
    until_empty(&outbox).await;
}

pub(crate) async fn a_connection_in_no_transaction_is_refused<T: User + SqlTarget>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let outbox = stage.outbox([ledger.keeper("bookkeeper")]).await;
    let mut config = stage.config.clone();
    config.schedule.require_transaction = false;
    let builder = stage.builder().await.config(config).handler(ledger.keeper("bookkeeper"));
    let lenient = builder.build().await.unwrap();
    let mut conn = T::connection(&stage.pool).await;
    for _ in 0..2 {
        let refused = outbox.schedule(&mut conn, &placed("order-1", 1)).await.unwrap_err();
        assert!(matches!(refused, ScheduleError::NoTransaction), "{refused:?}");
        assert!(refused.to_string().contains("pool.begin()"), "{refused}");
    }
    assert_eq!(outbox.admin().counts().await.unwrap().of(Status::Pending), 0);
    lenient.schedule(&mut conn, &placed("order-1", 1)).await.unwrap();
    assert_eq!(outbox.admin().counts().await.unwrap().of(Status::Pending), 1);
}

pub(crate) async fn a_transaction_that_was_begun_by_hand_is_recognised<T: User + SqlTarget>(
    stage: &Stage<T>,
) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let mut conn = T::connection(&stage.pool).await;
    T::execute(&mut conn, "BEGIN".to_owned()).await.unwrap();
    outbox.schedule(&mut conn, &placed("order-1", 1)).await.unwrap();
    outbox.schedule(&mut conn, &placed("order-1", 2)).await.unwrap();
    T::execute(&mut conn, "ROLLBACK".to_owned()).await.unwrap();
    assert_eq!(
        outbox.admin().counts().await.unwrap().of(Status::Pending),
        0,
        "the question has committed nothing"
    );
    assert!(outbox.schedule(&mut conn, &placed("order-1", 3)).await.is_err());
}
