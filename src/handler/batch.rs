//! Decoding the records of a batch into events.

use super::{
    error::{FailureKind, HandlerError},
    forms::BatchResults,
};
use crate::{
    codec,
    record::{Delivery, OutboxEvent, Record},
};

/// A batch decoded up to the first record that cannot be decoded.
pub struct DecodedBatch<'a, E> {
    /// The events in the order of the records.
    pub events: Vec<E>,
    /// The delivery of each event, in the same order.
    pub deliveries: Vec<&'a Delivery>,
    /// The decode error of the record after the last event, if there is one.
    pub undecodable: Undecodable,
}

/// The decode error of the record after the last event, if there is one.
#[derive(Debug)]
pub struct Undecodable(Option<HandlerError>);

impl<'a, E: OutboxEvent> DecodedBatch<'a, E> {
    /// Decodes the records in order, up to the first that cannot be decoded.
    pub fn of(records: &[&'a Record]) -> Self {
        let mut batch = Self { events: Vec::new(), deliveries: Vec::new(), undecodable: Undecodable(None) };
        for record in records {
            match codec::decode(&record.delivery.content_type, &record.payload) {
                Ok(event) => batch.events.push(event),
                Err(error) => {
                    let error = HandlerError::of_kind(FailureKind::Decode, error);
                    batch.undecodable = Undecodable(Some(error));
                    break;
                }
            }
            batch.deliveries.push(&record.delivery);
        }
        batch
    }
}

impl Undecodable {
    /// Refuses the batch if a record cannot be decoded. For handlers that handle a batch as a whole.
    ///
    /// # Errors
    /// The decode error of a record.
    pub fn check(self) -> Result<(), HandlerError> {
        self.0.map_or(Ok(()), Err)
    }

    /// Adds the decode error to the handler's results, if the results cover all of its `count` events.
    pub fn close(self, mut results: BatchResults, count: usize) -> BatchResults {
        results.truncate(count);
        if results.len() == count {
            results.extend(self.0.map(Err));
        }
        results
    }
}
