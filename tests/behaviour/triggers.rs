//! A database that refuses: triggers and constraints of the user, on tables of the user and of the outbox.

use std::time::Duration;

use keylane::{
    Delivery, HandlerError, Mode, Registration, Signal, TransactionalHandler, admin::Status, inner::Tables,
};
use sqlx::AssertSqlSafe;

use crate::{
    ledger::{Ledger, Placed, Step, placed, run_of},
    stage::{Stage, until_count, until_empty},
    target::{MariaDbTarget, MySqlTarget, PostgresTarget, SqlTarget, SqliteTarget},
    transactions::fails_like_any_other,
    user::{User, qualifier},
};

/// A store on which a trigger can refuse to delete records of the key `bad`.
pub(crate) trait Triggers: SqlTarget + User {
    const REFUSE: &[&str];
    const LET_GO: &str;
}

impl Triggers for PostgresTarget {
    const REFUSE: &[&str] = &[
        "CREATE FUNCTION {outbox}refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN IF OLD.record_key = 'bad' THEN RAISE 'not this one'; END IF; RETURN OLD; END$$",
        "CREATE TRIGGER refuse BEFORE DELETE ON {outbox}record FOR EACH ROW EXECUTE FUNCTION {outbox}refuse()",
    ];
    const LET_GO: &str = "DROP TRIGGER refuse ON {outbox}record";
}

const SIGNAL: &[&str] = &["CREATE TRIGGER {outbox}refuse BEFORE DELETE ON {outbox}record FOR EACH ROW \
    BEGIN IF OLD.record_key = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END"];

impl Triggers for MariaDbTarget {
    const REFUSE: &[&str] = SIGNAL;
    const LET_GO: &str = "DROP TRIGGER {outbox}refuse";
}

impl Triggers for MySqlTarget {
    const REFUSE: &[&str] = SIGNAL;
    const LET_GO: &str = "DROP TRIGGER {outbox}refuse";
}

impl Triggers for SqliteTarget {
    const REFUSE: &[&str] = &["CREATE TRIGGER {outbox}refuse BEFORE DELETE ON {outbox}record \
        WHEN OLD.record_key = 'bad' BEGIN SELECT RAISE(ABORT, 'not this one'); END"];
    const LET_GO: &str = "DROP TRIGGER {outbox}refuse";
}

/// The outcome of one key cannot be written: the other keys are delivered, the key waits without repeated
/// calls, and once the trigger is gone all records are completed.
pub(crate) async fn an_outcome_that_is_refused_keeps_its_own_key_waiting<T: Triggers>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    for statement in T::REFUSE {
        stage.execute(statement).await;
    }
    let events: Vec<Placed> = ["bad", "good-1", "good-2"].iter().flat_map(|key| run_of(key, 3)).collect();
    stage.schedule(&outbox, &events).await;
    until_count(&outbox, Status::Pending, 3).await;
    stage.schedule(&outbox, &[placed("good-1", 4)]).await;
    until_count(&outbox, Status::Pending, 3).await;
    let refused = |signal: &Signal| matches!(signal, Signal::StoreFailed { call: "settle", .. });
    let (tries, calls) = (stage.signals.count(refused), ledger.all().len());
    // One try per second at first, then fewer.
    stage.signals.at_least(tries + 1, "another try", refused).await;
    assert_eq!(ledger.all().len(), calls, "it is tried to write it, not to handle it again");
    stage.execute(T::LET_GO).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 10);
}

/// In claimed mode: the claim is kept, and longer than its first lease.
pub(crate) async fn an_outcome_that_is_refused_keeps_its_claim<T: Triggers>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.mode = Mode::Claimed;
    config.database.call_timeout = Duration::from_secs(1);
    config.delivery.claim_lease = Duration::from_secs(2);
    let keeper = [ledger.keeper("bookkeeper")];
    let outbox = stage.builder().await.config(config).handlers(keeper).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    for statement in T::REFUSE {
        stage.execute(statement).await;
    }
    let events: Vec<Placed> = ["bad", "good"].iter().flat_map(|key| run_of(key, 2)).collect();
    stage.schedule(&outbox, &events).await;
    until_count(&outbox, Status::Delayed, 2).await;
    let refused = |signal: &Signal| matches!(signal, Signal::StoreFailed { call: "settle", .. });
    let tries = stage.signals.count(refused);
    // Each of the two is refused once in a try. The pauses are 1 s, 2 s and 4 s.
    stage.signals.at_least(tries + 6, "three tries more", refused).await;
    assert_eq!(ledger.steps(Step::Began).len(), 4, "it is tried to write it, not to handle it again");
    stage.execute(T::LET_GO).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.steps(Step::Began).len(), 4);
}

/// Writes an effect that the database refuses at the commit.
struct Books(Tables);

impl TransactionalHandler<sqlx::Postgres> for Books {
    type Event = Placed;

    async fn handle(&self, _: Placed, tx: &mut sqlx::PgConnection, _: &Delivery) -> Result<(), HandlerError> {
        PostgresTarget::write_effect(tx, &self.0, "booked").await;
        Ok(())
    }
}

impl TransactionalHandler<sqlx::Sqlite> for Books {
    type Event = Placed;

    async fn handle(
        &self,
        _: Placed,
        tx: &mut sqlx::SqliteConnection,
        _: &Delivery,
    ) -> Result<(), HandlerError> {
        let sql = format!("INSERT INTO {}line (book) VALUES (7)", qualifier(&self.0));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(tx).await?;
        Ok(())
    }
}

async fn postgres_refuses_with(raise: &str) {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    PostgresTarget::make_effects(&stage.pool, &stage.tables).await;
    let function =
        "CREATE FUNCTION {outbox}refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISING; END$$";
    stage.execute(&function.replace("RAISING", raise)).await;
    stage
        .execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON {outbox}effect DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION {outbox}refuse()",
        )
        .await;
    let handler = Registration::transactional::<sqlx::Postgres, _>("books", Books(stage.tables.clone()));
    fails_like_any_other(&stage, handler).await;
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_trigger_that_raises_at_the_commit_is_a_failed_attempt() {
    postgres_refuses_with("RAISE 'out of paper'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_trigger_with_a_state_of_its_own_is_a_failed_attempt() {
    postgres_refuses_with("RAISE 'out of paper' USING ERRCODE = 'KL042'").await;
}

/// An error that looks like a conflict at each try is not a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_conflict_at_each_commit_is_a_failed_attempt() {
    postgres_refuses_with("RAISE 'out of paper' USING ERRCODE = '40001'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_a_deferred_key_that_is_missing_is_a_failed_attempt() {
    let stage = Stage::<SqliteTarget>::open().await.unwrap();
    stage.execute("CREATE TABLE {outbox}book (id INTEGER PRIMARY KEY)").await;
    let line =
        "CREATE TABLE {outbox}line (book INTEGER REFERENCES {outbox}book (id) DEFERRABLE INITIALLY DEFERRED)";
    stage.execute(line).await;
    let handler = Registration::transactional::<sqlx::Sqlite, _>("books", Books(stage.tables.clone()));
    let error = fails_like_any_other(&stage, handler).await;
    assert!(error.contains("FOREIGN KEY"), "{error}");
    stage.erase().await;
}
