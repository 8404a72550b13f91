//! Transactions of the user within those of the library, and handlers that end the library's transaction or
//! begin another one instead.

use std::{marker::PhantomData, sync::Arc};

use keylane::{
    Delivery, HandlerError, Outbox, Registration, RetryPolicy, TransactionError, TransactionalHandler,
    admin::{Filter, Status},
    inner::Tables,
};

use crate::{
    ledger::{Placed, placed},
    stage::{Stage, until_count, until_empty},
    target::{Connection, MariaDbTarget, MySqlTarget, Pool, PostgresTarget, SqlTarget},
    user::{End, Nesting, User, qualifier},
};

/// Writes in an inner transaction, ends it, and fails at its first attempt.
struct Books<T> {
    tables: Tables,
    end: End,
    target: PhantomData<fn() -> T>,
}

/// Writes, runs these statements, and writes again.
struct Statements<T> {
    tables: Tables,
    statements: &'static [&'static str],
    target: PhantomData<fn() -> T>,
}

/// Writes, continues in another transaction, and ends the given one.
struct Swaps<T: User> {
    tables: Tables,
    pool: Pool<T>,
    commits: bool,
}

impl<T: Nesting> TransactionalHandler<T::Db> for Books<T> {
    type Event = Placed;

    async fn handle(
        &self,
        _: Placed,
        tx: &mut Connection<T>,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        T::write_effect(tx, &self.tables, &format!("outer {}", delivery.attempt)).await;
        T::write_within(tx, &self.tables, &format!("inner {}", delivery.attempt), self.end).await;
        if delivery.attempt == 1 { Err(HandlerError::new("once more")) } else { Ok(()) }
    }
}

impl<T: User + SqlTarget> TransactionalHandler<T::Db> for Statements<T> {
    type Event = Placed;

    async fn handle(&self, _: Placed, tx: &mut Connection<T>, _: &Delivery) -> Result<(), HandlerError> {
        T::write_effect(tx, &self.tables, "before").await;
        for statement in self.statements {
            let sql = statement.replace("{outbox}", &qualifier(&self.tables));
            T::execute(tx, sql).await?;
        }
        T::write_effect(tx, &self.tables, "after").await;
        Ok(())
    }
}

impl<T: User> TransactionalHandler<T::Db> for Swaps<T> {
    type Event = Placed;

    async fn handle(&self, _: Placed, tx: &mut Connection<T>, _: &Delivery) -> Result<(), HandlerError> {
        T::write_effect(tx, &self.tables, "before").await;
        let mut work = T::begin(&self.pool).await;
        std::mem::swap(tx, &mut *work);
        if self.commits {
            T::commit(work).await
        } else {
            T::rollback(work).await
        }
        T::write_effect(tx, &self.tables, "after").await;
        Ok(())
    }
}

fn retried(registration: Registration) -> Registration {
    registration.retry(RetryPolicy::fixed(std::time::Duration::ZERO))
}

fn books<T: Nesting>(stage: &Stage<T>, end: End) -> Registration {
    let books = Books::<T> { tables: stage.tables.clone(), end, target: PhantomData };
    retried(Registration::transactional("books", books))
}

fn runs<T: User + SqlTarget>(stage: &Stage<T>, statements: &'static [&'static str]) -> Registration {
    let runs = Statements::<T> { tables: stage.tables.clone(), statements, target: PhantomData };
    retried(Registration::transactional("books", runs))
}

/// A commit of the inner transaction is rolled back with the outer one, and a rollback of the inner one
/// leaves the outer one unchanged.
pub(crate) async fn a_transaction_within_a_handler_is_a_part_of_its_own<T: Nesting>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let mut expected = Vec::new();
    for (end, inner) in [(End::Commit, true), (End::Rollback, false), (End::Drop, false)] {
        let (outbox, running) = stage.run([books(stage, end)]).await;
        stage.schedule(&outbox, &[placed("order-1", 1)]).await;
        until_empty(&outbox).await;
        running.shutdown().await;
        expected.push("outer 2".to_owned());
        expected.extend(inner.then(|| "inner 2".to_owned()));
    }
    expected.sort();
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, expected);
}

/// The record has failed at its first attempt, for this reason, and no effect after the end of the
/// transaction belongs to its completion.
async fn is_found_out<T: User>(stage: &Stage<T>, handler: Registration, reason: &str) {
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.attempts, 1);
    let error = failed.last_error.unwrap();
    assert!(error.contains(reason), "{error}");
    assert!(outbox.admin().discard(failed.id).await.unwrap());
}

pub(crate) async fn a_transaction_that_is_left_open_within_fails<T: Nesting>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let handler = books(stage, End::Forget);
    let handler = handler.retry(RetryPolicy::fixed(std::time::Duration::ZERO).max_retries(3));
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.attempts, 2, "the second attempt would have committed");
    assert!(failed.last_error.unwrap().contains("left a transaction open"));
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, Vec::<String>::new());
}

pub(crate) async fn a_handler_that_ends_its_transaction_is_found_out<T: User + SqlTarget>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    for statements in [&["COMMIT"] as &[_], &["ROLLBACK"], &["COMMIT", "BEGIN"], &["ROLLBACK", "BEGIN"]] {
        is_found_out(stage, runs(stage, statements), "ended the transaction").await;
    }
}

/// The effects of the ended transaction are kept or rolled back with it, and those of the other transaction
/// are not committed.
pub(crate) async fn a_handler_that_puts_another_transaction_in_place_is_found_out<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    for commits in [true, false] {
        let swaps = Swaps::<T> { tables: stage.tables.clone(), pool: stage.pool.clone(), commits };
        let swaps = retried(Registration::transactional("books", swaps));
        is_found_out(stage, swaps, "put another in its place").await;
        assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["before"]);
    }
}

/// DDL commits on the MySQL family.
async fn ddl_is_found_out<T: User + SqlTarget>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    is_found_out(stage, runs(stage, &["CREATE TABLE {outbox}made (id int)"]), "ended the transaction").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_a_handler_that_makes_a_table_is_found_out() {
    let stage = Stage::<MariaDbTarget>::open().await.unwrap();
    ddl_is_found_out(&stage).await;
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_a_handler_that_makes_a_table_is_found_out() {
    let Some(stage) = Stage::<MySqlTarget>::open().await else { return };
    ddl_is_found_out(&stage).await;
    stage.erase().await;
}

/// On PostgreSQL, DDL is part of the transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_handler_may_make_a_table() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    PostgresTarget::make_effects(&stage.pool, &stage.tables).await;
    let (outbox, running) = stage.run([runs(&stage, &["CREATE TABLE {outbox}made (id int)"])]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    stage.erase().await;
}

/// The work of `Outbox::transaction` begins an inner transaction, commits it, and fails: no write is kept.
pub(crate) async fn work_that_begins_within_is_taken_back_as_a_whole<T: Nesting>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = crate::ledger::Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let tables = Arc::new(stage.tables.clone());
    let work = async |end: End, number: u32, fails: bool| {
        let outbox: &Outbox<T::Db> = &outbox;
        let tables = &tables;
        outbox
            .transaction(async |tx| {
                outbox.schedule(tx, &placed("order-1", number)).await.unwrap();
                T::write_within(tx, tables, &format!("inner {number}"), end).await;
                if fails { Err(std::fmt::Error) } else { Ok(()) }
            })
            .await
    };
    assert!(matches!(work(End::Commit, 7, true).await, Err(TransactionError::Work(_))));
    assert!(matches!(work(End::Drop, 8, true).await, Err(TransactionError::Work(_))));
    let open = work(End::Forget, 9, false).await.unwrap_err();
    assert!(matches!(open, TransactionError::Commit(_)), "{open:?}");
    work(End::Commit, 1, false).await.unwrap();
    work(End::Rollback, 2, false).await.unwrap();
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [1, 2]);
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["inner 1"]);
}
