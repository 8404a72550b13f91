//! The plain-trait forms: what to implement when no macro is wanted.

use std::future::Future;

use super::error::{Failure, HandlerError};
use crate::{
    database::Database,
    record::{Delivery, OutboxEvent, Record},
};

/// Handles one event at a time. Register it with [`Registration::typed`](super::Registration::typed).
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
pub trait GenericHandler: Send + Sync + 'static {
    /// Handles one record, payload as stored.
    fn handle(&self, record: &Record) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// One result for each record of a batch, in the order given. Fewer results than records: the
/// rest were not tried and come again without an attempt counted.
pub type BatchResults = Vec<Result<(), HandlerError>>;

/// Handles several events at once. Register it with [`Registration::batch`](super::Registration::batch).
///
/// Under stop-on-first-failure the results after the first failure of a lane do not count: those
/// records come again after it, in order. So handle a lane in order and stop at its first failure.
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
/// Each key's records are in order among the others. Under stop-on-first-failure the results after the first failure
/// of a key do not count: those records come again after it. So keep the order of each key, and hand on nothing of a key
/// behind its first failure. If the target is away, return [`HandlerError::unavailable`] for each record.
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
pub trait TransactionalHandler<DB: Database>: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles one event. Write through `tx` only, and do not commit or roll it back.
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
/// A failure takes everything back. Then each half of the batch is tried in a transaction of its own,
/// down to the record that fails: only that one's attempt counts.
pub trait TransactionalBatchHandler<DB: Database>: Send + Sync + 'static {
    /// The event it takes.
    type Event: OutboxEvent;

    /// Handles the events, each lane's in order; `deliveries` has the same length and order. Write
    /// through `tx` only, and do not commit or roll it back.
    fn handle(
        &self,
        events: Vec<Self::Event>,
        tx: &mut DB::Connection,
        deliveries: &[&Delivery],
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Takes what a handler could not deliver. Register it with
/// [`Registration::fallback`](super::Registration::fallback).
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

/// Takes what any handler without a fallback of its own could not deliver. Register it with
/// [`Registration::default_fallback`](super::Registration::default_fallback).
pub trait GenericFallbackHandler: Send + Sync + 'static {
    /// Success completes the record; an error makes it FAILED.
    fn handle(
        &self,
        record: &Record,
        failure: &Failure,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}
