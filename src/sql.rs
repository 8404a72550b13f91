//! Scheduling without sqlx: what [`Outbox::schedule`] would run, as texts and values for another client of the same
//! database, such as Diesel, SeaORM or tokio-postgres.
//!
//! [`Outbox::statements`] renders them, and the caller runs them on a connection of its own:
//!
//! 1. All of them in one transaction, the one that writes what the event tells of, and in the order given. Nothing here
//!    can see that a transaction is open, so `schedule.require_transaction` does not help. On SQLite it is begun with
//!    `BEGIN IMMEDIATE`.
//! 2. If [`Step::NoteDedupKey`] has written no row, the event is a duplicate and the others are left out
//!    ([`Statement::is_duplicate`]).
//! 3. The transaction is committed, and then [`Outbox::wake`] is called, or the records wait for the next poll.
//!
//! The statements are those of one transaction: an attempt that is rolled back may be repeated with the same ones, and
//! keeps its event id. Made long before they are run, they miss handlers that were published meanwhile.
//!
//! The outbox still needs a pool of sqlx, for the workers and for the list of handlers. A process that only schedules
//! opens a connection of it when it reads that list, every `schedule.route_refresh`.

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

/// What schedules one event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statements {
    /// The identity of the event.
    pub event_id: Uuid,
    /// The partition of its key.
    pub partition: Partition,
    /// Records that are written: one per handler of the type.
    pub records: usize,
    /// In the order in which they are run.
    pub statements: Vec<Statement>,
}

impl<DB: SqlDatabase> Outbox<DB> {
    /// What [`schedule_with`](Self::schedule_with) would run, for another client of the database: see the module
    /// [`sql`](crate::sql) for what is left to the caller. The list of handlers is read if it is old; nothing else
    /// is asked.
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
    /// Those of [`schedule_with`](Self::schedule_with), but for [`ScheduleError::NoTransaction`].
    pub async fn statements<E: OutboxEvent>(
        &self,
        event: &E,
        options: ScheduleOptions,
    ) -> Result<Statements, ScheduleError> {
        self.statements_raw(RawEvent::encode(event)?, options).await
    }

    /// As [`statements`](Self::statements), for an event that is already encoded.
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
        let statements = DB::statements(&scheduler.tables, &records, options.dedup_key_given(), strict)?;
        let event_id = records.first().map_or_else(Uuid::nil, |record| record.event_id);
        Ok(Statements { event_id, partition, records: records.len(), statements })
    }
}
