//! The plain-trait forms: what to implement when no macro is wanted.

use std::future::Future;

use super::error::{Failure, HandlerError};
use crate::{
    database::Database,
    record::{Delivery, OutboxEvent, Record},
};

/// Handles one event at a time. Register it with [`Registration::typed`](super::Registration::typed).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Mailer;
///
/// impl Handler for Mailer {
///     type Event = OrderPlaced;
///
///     async fn handle(&self, order: OrderPlaced, delivery: &Delivery) -> Result<(), HandlerError> {
///         println!("order {} is placed (event {})", order.id, delivery.event_id);
///         Ok(())
///     }
/// }
///
/// let outbox = Outbox::builder(pool).handler(Registration::typed("letters", Mailer)).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles one event. It may be called again for the same event (at least once): use
    /// [`Delivery::event_id`] to make it idempotent.
    ///
    /// # Cancel safety
    /// The future is dropped at its timeout and when this instance loses the partition.
    fn handle(
        &self,
        event: Self::Event,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Handles records of any type. Register it with [`Registration::generic`](super::Registration::generic).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Archive;
///
/// impl GenericHandler for Archive {
///     async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
///         println!("{}: {} bytes", record.delivery.record_type, record.payload.len());
///         Ok(())
///     }
/// }
///
/// let registration = Registration::generic("archive", RecordTypes::all(), Archive);
/// let outbox = Outbox::builder(pool).handler(registration).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait GenericHandler: Send + Sync + 'static {
    /// Handles one record, payload as stored.
    fn handle(&self, record: &Record) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// One result per record of a batch, in the order given. If you return fewer results than records, the
/// remaining records are delivered again, and no attempt of theirs counts.
pub type BatchResults = Vec<Result<(), HandlerError>>;

/// Handles several events at once. Register it with [`Registration::batch`](super::Registration::batch).
///
/// Under stop-on-first-failure the results after the first failure of a lane do not count: those records are
/// delivered again after it, in order. So handle each lane in order, and stop at its first failure.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Totals;
///
/// impl BatchHandler for Totals {
///     type Event = OrderPlaced;
///
///     async fn handle(&self, orders: Vec<OrderPlaced>, deliveries: &[&Delivery]) -> BatchResults {
///         println!("{} orders of {}", orders.len(), deliveries[0].key);
///         orders.iter().map(|_| Ok(())).collect()
///     }
/// }
///
/// let outbox = Outbox::builder(pool).handler(Registration::batch("totals", 100, Totals)).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait BatchHandler: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles the events; `deliveries` has the same length and order.
    fn handle(
        &self,
        events: Vec<Self::Event>,
        deliveries: &[&Delivery],
    ) -> impl Future<Output = BatchResults> + Send;
}

/// Handles records of any type at once, of many keys: what a relay to a broker is made of. Register it with
/// [`Registration::generic_batch`](super::Registration::generic_batch).
///
/// Each key's records are in order among the others. Under stop-on-first-failure the results after the first
/// failure of a key do not count: those records are delivered again after it. So keep the order of each key,
/// and hand on nothing of a key behind its first failure. If the target is away, return
/// [`HandlerError::unavailable`] for each record.
///
/// ```
/// use keylane::{BatchResults, GenericBatchHandler, HandlerError, Record};
///
/// struct Relay;
///
/// impl GenericBatchHandler for Relay {
///     async fn handle(&self, records: &[&Record]) -> BatchResults {
///         let send = |record: &Record| match record.payload.len() {
///             0 => Err(HandlerError::permanent("an empty payload")),
///             _ => Ok(()),
///         };
///         records.iter().map(|record| send(record)).collect()
///     }
/// }
/// ```
pub trait GenericBatchHandler: Send + Sync + 'static {
    /// Handles the records, payloads as stored.
    ///
    /// # Cancel safety
    /// The future is dropped at its timeout and when this instance loses its lease.
    fn handle(&self, records: &[&Record]) -> impl Future<Output = BatchResults> + Send;
}

/// Handles one event inside the transaction in which its completion is written: what it writes
/// through `tx` happens exactly once. Register it with
/// [`Registration::transactional`](super::Registration::transactional).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Books;
///
/// impl TransactionalHandler<Memory> for Books {
///     type Event = OrderPlaced;
///
///     async fn handle(
///         &self,
///         order: OrderPlaced,
///         tx: &mut keylane::memory::MemoryConnection, // a PgConnection, on PostgreSQL
///         _: &Delivery,
///     ) -> Result<(), HandlerError> {
///         tx.push_effect(format!("INSERT INTO books … {}", order.id)); // your own statements
///         Ok(())
///     }
/// }
///
/// let outbox = Outbox::builder(pool).handler(Registration::transactional("books", Books)).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait TransactionalHandler<DB: Database>: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles one event. Write through `tx` only, and neither commit the transaction nor roll it back.
    fn handle(
        &self,
        event: Self::Event,
        tx: &mut DB::Connection,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Handles several events inside the transaction in which all of their completions are written: one
/// commit for all. Register it with
/// [`Registration::transactional_batch`](super::Registration::transactional_batch).
///
/// A failure rolls everything back. Then each half of the batch is tried in a transaction of its own, down to
/// the record that fails: only that record's attempt counts.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Books;
///
/// impl TransactionalBatchHandler<Memory> for Books {
///     type Event = OrderPlaced;
///
///     async fn handle(
///         &self,
///         orders: Vec<OrderPlaced>,
///         tx: &mut keylane::memory::MemoryConnection,
///         _: &[&Delivery],
///     ) -> Result<(), HandlerError> {
///         tx.push_effect(format!("INSERT INTO books … {} rows", orders.len()));
///         Ok(())
///     }
/// }
///
/// let registration = Registration::transactional_mixed_batch("books", 100, Books);
/// let outbox = Outbox::builder(pool).handler(registration).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait TransactionalBatchHandler<DB: Database>: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles the events, each lane's in order; `deliveries` has the same length and order. Write through
    /// `tx` only, and neither commit the transaction nor roll it back.
    fn handle(
        &self,
        events: Vec<Self::Event>,
        tx: &mut DB::Connection,
        deliveries: &[&Delivery],
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Takes the records that one handler could not deliver. Register it with
/// [`Registration::fallback`](super::Registration::fallback).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct Apology;
///
/// impl FallbackHandler for Apology {
///     type Event = OrderPlaced;
///
///     async fn handle(&self, order: OrderPlaced, failure: &Failure) -> Result<(), HandlerError> {
///         println!("order {}: no mail after {} attempts: {}", order.id, failure.attempts, failure.error);
///         Ok(())
///     }
/// }
///
/// let builder = Outbox::builder(pool).handlers(handlers![send_mail]);
/// let outbox = builder.handler(Registration::fallback("mailer", Apology)).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait FallbackHandler: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Success completes the record; an error makes it FAILED.
    fn handle(
        &self,
        event: Self::Event,
        failure: &Failure,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Takes the records of all handlers without a fallback of their own that could not deliver them. Register it
/// with [`Registration::default_fallback`](super::Registration::default_fallback).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// struct DeadLetters;
///
/// impl GenericFallbackHandler for DeadLetters {
///     async fn handle(&self, record: &Record, failure: &Failure) -> Result<(), HandlerError> {
///         println!("{} bytes for {}: {}", record.payload.len(), record.delivery.handler, failure.error);
///         Ok(())
///     }
/// }
///
/// let builder = Outbox::builder(pool).handlers(handlers![send_mail]);
/// let outbox = builder.handler(Registration::default_fallback(DeadLetters)).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait GenericFallbackHandler: Send + Sync + 'static {
    /// Success completes the record; an error makes it FAILED.
    fn handle(
        &self,
        record: &Record,
        failure: &Failure,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}
