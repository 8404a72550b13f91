//! Scheduling without sqlx: the statements of [`Outbox::schedule`] as texts and values, for another client of
//! the same database, such as Diesel, SeaORM or tokio-postgres.
//!
//! [`Outbox::statements`] renders the statements, and the caller runs them on its own connection:
//!
//! 1. Run all statements in one transaction, the transaction that writes the business rows of the event, and
//!    in the given order. This module cannot see whether a transaction is open, so
//!    `schedule.require_transaction` has no effect. On SQLite, begin the transaction with `BEGIN IMMEDIATE`.
//! 2. If [`Step::InsertDedupKey`] has written no row, the event is a duplicate: leave the other statements out
//!    ([`Statement::is_duplicate`]).
//! 3. Commit the transaction, then call [`Outbox::wake`], or the records wait for the next poll.
//!
//! The statements are those of one transaction. If the transaction is rolled back, the same statements may be
//! run again, and the event keeps its id. If they are run long after they were rendered, they miss handlers
//! that were published meanwhile.
//!
//! The outbox still needs a pool of sqlx, for the workers and for the list of handlers. A process that only
//! schedules opens a connection of the pool to read the list, every `schedule.route_refresh`.

use uuid::Uuid;

use crate::{
    config::OrderLevel,
    outbox::Outbox,
    partition::Partition,
    record::OutboxEvent,
    schedule::{RawEvent, ScheduleError, ScheduleOptions},
};

pub use crate::{
    database::SqlDatabase,
    statement::{Statement, Step, Value},
};

/// The statements that schedule one event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statements {
    /// The identity of the event.
    pub event_id: Uuid,
    /// The partition of the event's key.
    pub partition: Partition,
    /// The number of records that are written: one per handler of the type.
    pub records: usize,
    /// The statements in the order in which they are run.
    pub statements: Vec<Statement>,
}

impl<DB: SqlDatabase> Outbox<DB> {
    /// Renders the statements of [`schedule_with`](Self::schedule_with) for another client of the database:
    /// see the module [`sql`](crate::sql) for the duties of the caller. If the list of handlers is old, it is
    /// read; no other query is made.
    ///
    /// ```
    /// # use keylane::{Outbox, OutboxEvent, ScheduleError, ScheduleOptions, sql::SqlDatabase};
    /// # async fn run<DB: SqlDatabase>(
    /// #     outbox: Outbox<DB>,
    /// #     event: impl OutboxEvent,
    /// # ) -> Result<Vec<String>, ScheduleError> {
    /// let statements = outbox.statements(&event, ScheduleOptions::new().dedup_key("payment-1")).await?;
    /// let texts = statements.statements.into_iter().map(|statement| statement.text);
    /// # Ok(texts.collect())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`schedule_with`](Self::schedule_with), except [`ScheduleError::NoTransaction`].
    pub async fn statements<E: OutboxEvent>(
        &self,
        event: &E,
        options: ScheduleOptions,
    ) -> Result<Statements, ScheduleError> {
        self.statements_raw(RawEvent::encode(event)?, options).await
    }

    /// Does as [`statements`](Self::statements), for an encoded event.
    ///
    /// ```
    /// # use keylane::{Outbox, RawEvent, ScheduleError, ScheduleOptions, sql::{SqlDatabase, Statements}};
    /// # async fn run<DB: SqlDatabase>(outbox: Outbox<DB>) -> Result<Statements, ScheduleError> {
    /// let event = RawEvent::new("order.placed", "order-42", r#"{"id":42}"#);
    /// let statements = outbox.statements_raw(event, ScheduleOptions::new()).await?;
    /// # Ok(statements)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`statements`](Self::statements).
    pub async fn statements_raw(
        &self,
        event: RawEvent,
        options: ScheduleOptions,
    ) -> Result<Statements, ScheduleError> {
        let scheduler = &self.inner.scheduler;
        let partition = Partition::of(&event.key);
        let records = scheduler.records_of(event, &options).await?;
        let strict = scheduler.config.order == OrderLevel::Strict;
        let statements = DB::statements(&scheduler.producer, &records, options.dedup_key_given(), strict)?;
        let event_id = records.first().map_or_else(Uuid::nil, |record| record.event_id);
        Ok(Statements { event_id, partition, records: records.len(), statements })
    }
}
