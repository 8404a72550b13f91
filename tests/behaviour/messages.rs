//! The texts of database errors: the cause in one line, the remedy, and never a value of the user.

use std::{error::Error, time::Duration};

use keylane::{Config, Outbox, Signal};
use sqlx::{
    Connection as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    ledger::{Ledger, placed},
    stage::Stage,
    target::{PostgresTarget, SqlTarget},
    user::User,
};

const CANARY: &str = "canary-7b21ee";

pub(crate) async fn schedule_before_migrate_says_what_to_do<T: User + SqlTarget>(stage: &Stage<T>) {
    let mut config = stage.config.clone();
    config.table_prefix.push_str("none_");
    let outbox = stage.builder().await.config(config).build().await.unwrap();
    let mut work = T::begin(&stage.pool).await;
    let error = outbox.schedule(&mut work, &placed(CANARY, 1)).await.unwrap_err().to_string();
    T::rollback(work).await;
    assert!(error.contains("call Outbox::migrate(), or have a DBA run"), "{error}");
    assert!(!error.contains(CANARY) && !error.contains('\n'), "{error}");
}

/// On some databases the text of the server quotes the value, in the message or in its detail.
pub(crate) async fn an_error_tells_its_cause_and_no_value<T: Texts>(stage: &Stage<T>) {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    for (obstacle, told) in [(T::UNIQUE, T::DUPLICATE), (T::TRIGGER, T::REFUSED)] {
        let name = stage.tables.prefix();
        for text in obstacle.split(";;") {
            stage.execute(&text.replace("{index}", name)).await;
        }
        let mut work = T::begin(&stage.pool).await;
        let error = match outbox.schedule(&mut work, &placed(CANARY, 1)).await {
            Ok(_) => outbox.schedule(&mut work, &placed(CANARY, 2)).await.unwrap_err(),
            Err(error) => error,
        };
        T::rollback(work).await;
        let (shown, debugged) = (error.to_string(), format!("{error:?}"));
        let told = told.replace("{index}", name);
        assert!(shown.starts_with("insert failed: ") && shown.contains(&told), "{shown} instead of {told}");
        let mut texts = vec![shown, debugged];
        let mut source = error.source();
        while let Some(cause) = source {
            texts.push(format!("{cause} {cause:?}"));
            source = cause.source();
        }
        assert!(!texts.concat().contains(CANARY), "{texts:?}");
    }
    running.shutdown().await;
}

/// Obstacles to an insert whose errors quote the key, and the texts that are shown.
pub(crate) trait Texts: User + SqlTarget {
    const UNIQUE: &str;
    const DUPLICATE: &str;
    const TRIGGER: &str;
    const REFUSED: &str;
}

impl Texts for PostgresTarget {
    const UNIQUE: &str = "CREATE UNIQUE INDEX one_key ON {outbox}record (record_key)";
    const DUPLICATE: &str = "code 23505, constraint one_key";
    const TRIGGER: &str = "CREATE FUNCTION {outbox}quote() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE 'no %', NEW.record_key; END $$;; \
         CREATE TRIGGER quote BEFORE INSERT ON {outbox}record FOR EACH ROW EXECUTE FUNCTION {outbox}quote()";
    const REFUSED: &str = "code P0001";
}

macro_rules! on_mysql {
    ($($target:ty),*) => {$(
        impl Texts for $target {
            const UNIQUE: &str = "CREATE UNIQUE INDEX one_key ON {outbox}record (record_key)";
            const DUPLICATE: &str = "code 1062, constraint ";
            const TRIGGER: &str = "CREATE TRIGGER {index}quote BEFORE INSERT ON {outbox}record FOR EACH ROW \
                 BEGIN SET @quoted = CONVERT(NEW.record_key USING utf8mb4); \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = @quoted; END";
            const REFUSED: &str = "code 1644";
        }
    )*};
}

on_mysql!(crate::target::MariaDbTarget, crate::target::MySqlTarget);

impl Texts for crate::target::SqliteTarget {
    const UNIQUE: &str = "CREATE UNIQUE INDEX {index}one_key ON {outbox}record (record_key)";
    const DUPLICATE: &str = "UNIQUE constraint failed: {index}record.record_key";
    const TRIGGER: &str = "CREATE TRIGGER {index}quote BEFORE INSERT ON {outbox}record \
         BEGIN SELECT RAISE(ABORT, NEW.record_key); END";
    const REFUSED: &str = "code 1811";
}

pub(crate) async fn a_failed_record_is_told_with_all_that_finds_it<T: User>(stage: &Stage<T>) {
    let refuse = |_: &crate::ledger::Placed, _: &keylane::Delivery| {
        Err(keylane::HandlerError::permanent(format!("no{}", "!".repeat(2_000))))
    };
    let (outbox, running) = stage.run([Ledger::default().handler("bookkeeper", refuse)]).await;
    let mut work = T::begin(&stage.pool).await;
    let options = keylane::ScheduleOptions::new().trace_id("4bf92f35");
    let scheduled = outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let told = stage.signals.first("the failure", |signal| match signal {
        Signal::RecordFailed { event_id, trace_id, lane, attempts, error, .. } => {
            Some((*event_id, trace_id.clone(), lane.handler.to_string(), *attempts, error.clone()))
        }
        _ => None,
    });
    let (event_id, trace_id, handler, attempts, error) = told.await;
    assert_eq!((event_id, attempts), (scheduled.event_id, 1));
    assert_eq!((trace_id.as_deref(), handler.as_str()), (Some("4bf92f35"), "bookkeeper"));
    assert!(error.starts_with("no!") && error.len() == 1000, "{} bytes: {error}", error.len());
    running.shutdown().await;
}

/// A role that may create tables in the schema, but no schemas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_migrate_needs_no_right_to_create_a_schema_that_exists() {
    let Some(stage) = Stage::<PostgresTarget>::bare().await else { return };
    let schema = stage.tables.schema().unwrap().to_owned();
    stage
        .execute(&format!(
            "CREATE ROLE {schema} LOGIN; CREATE SCHEMA {schema}; GRANT USAGE, CREATE ON SCHEMA {schema} TO {schema}"
        ))
        .await;
    let options: PgConnectOptions = (*stage.pool.connect_options()).clone().username(&schema);
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    assert!(pool.acquire().await.unwrap().ping().await.is_ok());
    let outbox = Outbox::builder(pool).config(stage.config.clone()).build().await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), outbox.migrate()).await.unwrap().unwrap();
    stage.execute(&format!("DROP SCHEMA {schema} CASCADE; DROP ROLE {schema}")).await;
}

#[test]
fn settings_that_cannot_be_read_are_told_by_their_path() {
    let refused = |text: &str| toml::from_str::<Config>(text).unwrap_err().to_string();
    for (text, path) in [
        ("[delivery]\nhandler_timeout = 'soon'", "delivery.handler_timeout"),
        ("[database]\ncall_timeout = 5", "database.call_timeout"),
        ("[retry]\nbackoff = { fixed = { delay = '5 parsecs' } }", "retry.backoff.fixed.delay"),
        ("[retry]\nbackoff = 'fixed'", "retry.backoff"),
    ] {
        let error = refused(text);
        assert!(error.contains(&format!("for {path}")) && error.contains("\"5s\""), "{error}");
    }
    let config: Config = toml::from_str("[retry]\nbackoff = 'exponential'").unwrap();
    assert_eq!(config, Config::default());
    let policy = keylane::RetryPolicy::default().multiplier(0.5).initial_delay(Duration::from_secs(90));
    let problems = policy.problems("retry");
    assert_eq!(
        problems,
        [
            "retry.backoff.exponential.initial is 90s, but must be at most retry.max_delay (60s), which would cut it",
            "retry.backoff.exponential.multiplier is 0.5, but must be a number of at least 1",
        ]
    );
}
