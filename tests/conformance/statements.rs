//! Scheduling without sqlx: the statements of an event, run as texts, write the same as `schedule`.

use std::time::{Duration, SystemTime};

use keylane::{
    Config, OrderLevel, RawEvent, ScheduleError, ScheduleOptions,
    database::Database,
    handler::Route,
    sql::{Statement, Statements, Step},
};
use uuid::Uuid;

use crate::{
    outbox::{Outbox, assert_waits, promptly},
    target::{Server, SqlTarget, Tx},
};

type Producer<T> = keylane::Outbox<<T as crate::target::Target>::Db>;

/// An outbox that schedules a type with two handlers.
async fn producer<T: SqlTarget>(outbox: &Outbox<T>, order: OrderLevel) -> Producer<T> {
    let route = |handler: &str| Route { record_type: "order.placed".to_owned(), handler: handler.to_owned() };
    outbox.store.publish_routes(&["billing", "mail"].map(route)).await.unwrap();
    let mut config = Config::default();
    config.schema = outbox.tables.schema().map(str::to_owned);
    config.table_prefix = outbox.tables.prefix().to_owned();
    config.schedule.order = order;
    Producer::<T>::builder(outbox.pool.clone()).config(config).build().await.unwrap()
}

fn event() -> RawEvent {
    RawEvent::new("order.placed", "order-42", r#"{"id":42}"#)
}

/// The placeholders are those that docs/other-clients.md names, one per value.
fn assert_placeholders<T: SqlTarget>(statement: &Statement) {
    let (text, values) = (&statement.text, statement.values.len());
    let found = match T::Db::NAME {
        "PostgreSQL" => (1..).take_while(|number| text.contains(&format!("${number}"))).count(),
        _ => text.matches('?').count(),
    };
    assert!(found == values && text.contains('$') == (T::Db::NAME == "PostgreSQL"), "{values}: {text}");
}

/// Runs the statements of an event. Returns false if the event is a duplicate.
async fn run<T: SqlTarget>(tx: &mut Tx<T>, statements: &Statements) -> bool {
    for statement in &statements.statements {
        assert_placeholders::<T>(statement);
        if statement.is_duplicate(T::run(tx, statement).await.unwrap()) {
            return false;
        }
    }
    true
}

pub(crate) async fn statements_write_the_rows_that_schedule_writes<T: SqlTarget>(outbox: &Outbox<T>) {
    let producer = producer(outbox, OrderLevel::Strict).await;
    let due = SystemTime::now() + Duration::from_secs(3600);
    let options = || {
        [
            ScheduleOptions::new(),
            ScheduleOptions::new().trace_id("t-1").header("tenant", "ö"),
            ScheduleOptions::new().at(due),
            ScheduleOptions::new().after(Duration::from_secs(3600)).trace_id("t-2"),
            ScheduleOptions::new().expires_at(due).at(due),
            ScheduleOptions::new().expires_after(Duration::from_secs(3600)),
        ]
    };
    for (one, other) in options().into_iter().zip(options()) {
        let event_id = Uuid::now_v7();
        let mut tx = outbox.begin().await;
        let scheduled = producer.schedule_raw(&mut tx, event(), one.event_id(event_id)).await.unwrap();
        let statements = producer.statements_raw(event(), other.event_id(event_id)).await.unwrap();
        assert!(run::<T>(&mut tx, &statements).await);
        outbox.commit(tx).await;
        assert_eq!((statements.event_id, statements.records), (scheduled.event_id, scheduled.records));
        assert_eq!(statements.partition, keylane::partition::Partition::of("order-42"));
    }
    // The pairs of records: the one of `schedule`, and with a later id the one of the statements.
    let pairs = "SELECT count(*) FROM {outbox}record a JOIN {outbox}record b ON b.event_id = a.event_id \
                 AND b.handler = a.handler AND b.id > a.id WHERE b.partition_no = a.partition_no \
                 AND b.record_key = a.record_key AND b.record_type = a.record_type \
                 AND b.content_type = a.content_type AND b.payload = a.payload AND b.status = a.status \
                 AND b.attempts = a.attempts AND coalesce(b.headers, '-') = coalesce(a.headers, '-')";
    assert_eq!(outbox.number("SELECT count(*) FROM {outbox}record").await, 24);
    assert_eq!(outbox.number(pairs).await, 12);
    let delayed = format!("{pairs} AND a.next_attempt_at IS NOT NULL AND b.next_attempt_at IS NOT NULL");
    assert_eq!(outbox.number(&delayed).await, 6);
    let expiring = format!("{pairs} AND a.expires_at IS NOT NULL AND b.expires_at IS NOT NULL");
    assert_eq!(outbox.number(&expiring).await, 4);
    // Only for records with a due time: for the others, clocks of milliseconds may give the same time, too.
    let timed = format!("{pairs} AND a.expires_at = b.expires_at AND a.next_attempt_at IS NOT NULL");
    assert_eq!(outbox.number(&timed).await, 2);
    assert_eq!(
        outbox
            .number(&format!("{pairs} AND a.next_attempt_at = b.next_attempt_at AND a.headers IS NULL"))
            .await,
        4
    );
}

pub(crate) async fn a_statement_of_a_dedup_key_tells_a_duplicate<T: SqlTarget>(outbox: &Outbox<T>) {
    let producer = producer(outbox, OrderLevel::Causal).await;
    let options = || ScheduleOptions::new().dedup_key("payment-1");
    for is_new in [true, false] {
        let statements = producer.statements_raw(event(), options()).await.unwrap();
        assert_eq!(statements.statements[0].step, Step::InsertDedupKey);
        let mut tx = outbox.begin().await;
        assert_eq!(run::<T>(&mut tx, &statements).await, is_new);
        outbox.commit(tx).await;
    }
    let mut tx = outbox.begin().await;
    let scheduled = producer.schedule_raw(&mut tx, event(), options()).await.unwrap();
    outbox.commit(tx).await;
    assert!(scheduled.duplicate);
    assert_eq!(outbox.pending().await.len(), 2);
}

pub(crate) async fn statements_check_what_schedule_checks<T: SqlTarget>(outbox: &Outbox<T>) {
    let producer = producer(outbox, OrderLevel::Causal).await;
    let none = ScheduleOptions::new;
    let refused = [
        (RawEvent::new("order.placed", "", "1"), none()),
        (RawEvent::new("order.unheard", "order-42", "1"), none()),
        (event(), none().dedup_key("")),
        (event(), none().header("tenant", "x".repeat(100_000))),
    ];
    for (event, options) in refused {
        let told = producer.statements_raw(event.clone(), options.clone()).await.unwrap_err();
        let mut tx = outbox.begin().await;
        let other = producer.schedule_raw(&mut tx, event, options).await.unwrap_err();
        assert_eq!(told.to_string(), other.to_string());
        assert!(!matches!(told, ScheduleError::Store(_)), "{told}");
    }
}

pub(crate) async fn a_statement_locks_the_key_as_the_strict_order_does<T: Server>(outbox: &Outbox<T>) {
    let producer = producer(outbox, OrderLevel::Strict).await;
    let statements = producer.statements_raw(event(), ScheduleOptions::new()).await.unwrap();
    assert_eq!(statements.statements[0].step, Step::LockKey);
    let mut first = outbox.begin().await;
    assert!(run::<T>(&mut first, &statements).await);
    let mut second = outbox.begin().await;
    let mut locked = T::Db::lock_keys(&mut second, &outbox.producer, &["order-42"]);
    assert_waits(&mut locked).await;
    outbox.commit(first).await;
    promptly(locked).await.unwrap();
}
