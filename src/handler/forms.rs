//! The plain traits: the forms of a handler without a macro.

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
    /// The type of the event.
    type Event: OutboxEvent;

    /// Handles one event. The same event may come again (at least once): use [`Delivery::event_id`] to make
    /// the handler idempotent.
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
    /// Handles one record with the payload as stored.
    fn handle(&self, record: &Record) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// One result per record of a batch, in the order of the records. If you return fewer results than records,
/// the remaining records are delivered again without counting an attempt.
pub type BatchResults = Vec<Result<(), HandlerError>>;

/// Handles several events at once. Register it with [`Registration::batch`](super::Registration::batch).
///
/// Under stop-on-first-failure, the results after the first failure of a lane do not count: these records are
/// delivered again later, in order. So handle each lane in order, and stop at its first failure.
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
    /// The type of the event.
    type Event: OutboxEvent;

    /// Handles the events; `deliveries` has the same length and order.
    fn handle(
        &self,
        events: Vec<Self::Event>,
        deliveries: &[&Delivery],
    ) -> impl Future<Output = BatchResults> + Send;
}

/// Handles several records at once, of any type and of many keys: the form for a relay to a broker. Register
/// it with [`Registration::generic_batch`](super::Registration::generic_batch).
///
/// The records of each key are in order. Under stop-on-first-failure, the results after the first failure of
/// a key do not count: these records are delivered again later. So keep the order of each key, and after the
/// first failure of a key pass on no later record of that key. If the target is unreachable, return
/// [`HandlerError::unavailable`] for each record.
///
/// ```
/// use keylane::{BatchResults, HandlerError, Record, handler::GenericBatchHandler};
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
    /// Handles the records with their payloads as stored.
    ///
    /// # Cancel safety
    /// The future is dropped at its timeout and when this instance loses its lease.
    fn handle(&self, records: &[&Record]) -> impl Future<Output = BatchResults> + Send;
}

/// Handles one event in the transaction that writes its completion: writes through `tx` happen exactly once.
/// Register it with [`Registration::transactional`](super::Registration::transactional).
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
    /// The type of the event.
    type Event: OutboxEvent;

    /// Handles one event. Write only through `tx`, and neither commit the transaction nor roll it back.
    fn handle(
        &self,
        event: Self::Event,
        tx: &mut DB::Connection,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Handles several events in the transaction that writes all their completions: one commit for all. Register
/// it with [`Registration::transactional_batch`](super::Registration::transactional_batch).
///
/// A failure rolls the whole transaction back. Then each half of the batch is tried in a separate
/// transaction, down to the record that fails: only the attempt of that record counts.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// use keylane::handler::TransactionalBatchHandler;
///
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
    /// The type of the event.
    type Event: OutboxEvent;

    /// Handles the events, in order per lane. `deliveries` has the same length and order. Write only through
    /// `tx`, and neither commit the transaction nor roll it back.
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
    /// The type of the event.
    type Event: OutboxEvent;

    /// Handles one event that the handler could not deliver. Success completes the record; an error makes it
    /// FAILED.
    fn handle(
        &self,
        event: Self::Event,
        failure: &Failure,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Takes the undelivered records of all handlers without a fallback handler of their own. Register it with
/// [`Registration::default_fallback`](super::Registration::default_fallback).
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// use keylane::handler::GenericFallbackHandler;
///
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
    /// Handles one record that its handler could not deliver. Success completes the record; an error makes it
    /// FAILED.
    fn handle(
        &self,
        record: &Record,
        failure: &Failure,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}
