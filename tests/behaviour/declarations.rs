//! Handlers that cannot be built: all problems at once, as sentences.

use std::time::Duration;

use keylane::{
    BuildError, Delivery, Failure, FallbackHandler, Handler, HandlerError, Outbox, OutboxEvent, Record,
    RecordTypes, Registration, RetryPolicy, TransactionalHandler, handler::GenericFallbackHandler,
    memory::MemoryPool,
};
use serde::{Deserialize, Serialize};
use sqlx::{postgres::PgPoolOptions, sqlite::SqlitePoolOptions};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    delivering::Tell,
    ledger::{Ledger, Placed},
};

/// Another Rust type with the same record type.
#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "{id}")]
struct OrderPlaced {
    id: String,
}

struct Nothing;

impl Handler for Nothing {
    type Event = OrderPlaced;

    async fn handle(&self, _: OrderPlaced, _: &Delivery) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl FallbackHandler for Nothing {
    type Event = Placed;

    async fn handle(&self, _: Placed, _: &Failure) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl GenericFallbackHandler for Nothing {
    async fn handle(&self, _: &Record, _: &Failure) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl TransactionalHandler<sqlx::Postgres> for Nothing {
    type Event = Placed;

    async fn handle(&self, _: Placed, _: &mut sqlx::PgConnection, _: &Delivery) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn keeper(id: &str) -> Registration {
    Ledger::default().keeper(id)
}

/// The problems of these handlers, one sentence each.
async fn problems(handlers: impl IntoIterator<Item = Registration>) -> Vec<String> {
    match Outbox::builder(MemoryPool::new()).handlers(handlers).build().await {
        Err(BuildError::Handlers { problems }) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was built"),
    }
}

#[tokio::test]
async fn an_id_is_used_once() {
    assert_eq!(
        problems([keeper("mail"), keeper("mail")]).await,
        ["handler id \"mail\" is used twice; ids are stored with records, so each must be unique"]
    );
}

#[tokio::test]
async fn ids_and_record_types_are_plain() {
    let (told, _received) = unbounded_channel();
    let takes = RecordTypes::types(["order placed", "order.placed", "order.*", "*", ""]);
    let long = "x".repeat(129);
    let problems =
        problems([Registration::generic("", takes, Tell(told)), keeper("Käse"), keeper(&long)]).await;
    let rule = "is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : /";
    assert_eq!(
        problems,
        [
            format!("record type \"order placed\" {rule} (it has 12)"),
            format!("record type \"\" {rule} (it has 0)"),
            format!("handler id \"\" {rule} (it has 0)"),
            format!("handler id \"Käse\" {rule} (it has 5)"),
            format!("handler id {long:?} {rule} (it has 129)"),
        ]
    );
}

#[tokio::test]
async fn a_record_type_has_one_rust_type() {
    let problems = problems([keeper("mail"), Registration::typed("stock", Nothing)]).await;
    assert_eq!(
        problems,
        ["record type \"order.placed\" is declared twice, by behaviour::ledger::Placed and by \
          behaviour::declarations::OrderPlaced; rename one of them"]
    );
}

#[tokio::test]
async fn state_that_is_needed_is_given() {
    let problems = problems([
        keeper("mail").needs::<String>(),
        Registration::fallback("mail", Nothing).needs::<Vec<u8>>(),
    ])
    .await;
    assert_eq!(
        problems,
        [
            "handler \"mail\" needs State<alloc::string::String>, but the builder was given none: add \
             .state(value)",
            "handler \"fallback of mail\" needs State<alloc::vec::Vec<u8>>, but the builder was given none: \
             add .state(value)",
        ]
    );
    let good = Outbox::builder(MemoryPool::new()).state("here".to_owned());
    good.handler(keeper("mail").needs::<String>()).build().await.unwrap();
}

#[tokio::test]
async fn a_fallback_names_a_handler_that_has_none_yet() {
    let problems = problems([
        Registration::fallback("mial", Nothing),
        keeper("mail"),
        Registration::fallback("mail", Nothing),
        Registration::fallback("mail", Nothing),
        Registration::default_fallback(Nothing),
        Registration::default_fallback(Nothing),
    ])
    .await;
    assert_eq!(
        problems,
        [
            "fallback handler of \"mial\": there is no handler with that id",
            "handler \"mail\" has two fallback handlers; keep one",
            "handler \"every handler\" has two fallback handlers; keep one",
        ]
    );
}

#[tokio::test]
async fn options_are_in_range() {
    let (told, _received) = unbounded_channel();
    let policy = RetryPolicy::fixed(Duration::from_secs(120)).jitter(1.5);
    let problems = problems([
        Registration::generic("audit", RecordTypes::all(), Tell(told)).timeout(Duration::ZERO),
        keeper("mail").retry(policy),
    ])
    .await;
    assert_eq!(
        problems[0],
        "handler \"audit\": timeout is 0s: every call would fail; leave it out for the default"
    );
    assert!(problems[1].contains("retry.jitter is 1.5"), "{problems:?}");
    assert!(problems[2].contains("120s") && problems[2].contains("60s"), "{problems:?}");
    assert_eq!(problems.len(), 3);
}

#[tokio::test]
async fn all_problems_are_told_at_once() {
    let handlers = [keeper("mail"), keeper("mail"), keeper("x y"), Registration::fallback("nobody", Nothing)];
    let error = match Outbox::builder(MemoryPool::new()).handlers(handlers).build().await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it was built"),
    };
    assert!(error.starts_with("handlers have 3 problem(s): "), "{error}");
}

#[tokio::test]
async fn a_transaction_is_of_the_outboxs_own_database() {
    let problems = problems([Registration::transactional("books", Nothing)]).await;
    assert_eq!(
        problems,
        ["handler \"books\" takes a transaction of PostgreSQL, but this outbox is on memory"]
    );
}

#[tokio::test]
async fn a_timeout_is_no_longer_than_others_wait_for_a_handover() {
    let handler = keeper("mail").timeout(Duration::from_secs(600));
    let error = match Outbox::builder(MemoryPool::new()).handler(handler).build().await {
        Err(BuildError::Config(error)) => error.problems,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was built"),
    };
    assert_eq!(
        error,
        [
            "handler \"mail\" has a timeout of 600s, but cluster.handover_timeout less the database.call_timeout of \
          its writes is 55s: raise handover_timeout or lower the handler's timeout"
        ]
    );
}

#[tokio::test]
async fn a_pool_is_large_enough_for_the_transactional_handlers() {
    // No server listens there, and building opens no connection.
    let pool = || PgPoolOptions::new().max_connections(4).connect_lazy("postgres://nobody@127.0.0.1:1/none");
    let build = |transactional| {
        let handler = match transactional {
            true => Registration::transactional("books", Nothing),
            false => keeper("books"),
        };
        Outbox::builder(pool().unwrap()).handler(handler).build()
    };
    let Err(error) = build(true).await else { panic!("it was built") };
    assert_eq!(
        error.to_string(),
        "the pool has at most 4 connections, but 5 are needed (transactional_concurrency + 1); enlarge the \
         pool or lower the setting"
    );
    build(false).await.unwrap();
}

#[tokio::test]
async fn a_sqlite_database_in_memory_is_refused() {
    for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite://"] {
        let pool = SqlitePoolOptions::new().connect_lazy(url).unwrap();
        let Err(error) = Outbox::builder(pool).build().await else { panic!("{url} was built") };
        assert_eq!(
            error.to_string(),
            "an in-memory SQLite database cannot be shared between connections; use a file, or \
             keylane::memory for tests"
        );
    }
}
