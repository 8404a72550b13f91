//! The arguments of a call: the record and the shared values.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    sync::Arc,
};

use super::error::{FailureKind, HandlerError};
use crate::{
    codec,
    record::{Delivery, OutboxEvent, Record},
};

/// A value shared with handlers. Given to the builder by `state(value)` and cloned per call.
///
/// ```
/// use keylane::{OutboxEvent, State, outbox_handler};
/// # #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
/// # #[outbox(record_type = "order.placed", key = "order-{id}")]
/// # struct OrderPlaced { id: u64 }
///
/// #[derive(Clone)]
/// struct Sender(&'static str);
///
/// #[outbox_handler(id = "mailer")]
/// async fn send_mail(order: OrderPlaced, State(sender): State<Sender>) -> Result<(), std::io::Error> {
///     println!("from {}: order {} is placed", sender.0, order.id);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct State<T>(pub T);

/// The shared values of one outbox, by their Rust types.
#[derive(Clone, Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    pub(crate) fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn contains(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }

    /// The value of this type. If the value is missing and the registration has declared the type,
    /// [`build`](crate::OutboxBuilder::build) returns an error; otherwise the call fails here.
    pub fn get<T: Clone + Send + Sync + 'static>(&self) -> Result<State<T>, HandlerError> {
        let value = self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref::<T>());
        match value {
            Some(value) => Ok(State(value.clone())),
            None => Err(HandlerError::new(format!(
                "no state of type {}: give it to the builder with .state(value)",
                type_name::<T>()
            ))),
        }
    }
}

/// The record and the shared values of one call.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    record: &'a Record,
    states: &'a States,
}

impl<'a> Context<'a> {
    pub(crate) fn new(record: &'a Record, states: &'a States) -> Self {
        Self { record, states }
    }

    /// The payload decoded into an event.
    ///
    /// # Errors
    /// A failure of kind [`FailureKind::Decode`], which is not retried: the record waits for another build or
    /// has failed; see [`RetryPolicy::undecodable`](crate::RetryPolicy::undecodable).
    pub fn event<E: OutboxEvent>(&self) -> Result<E, HandlerError> {
        codec::decode(&self.record.delivery.content_type, &self.record.payload)
            .map_err(|error| HandlerError::of_kind(FailureKind::Decode, error))
    }

    /// The record with its payload as stored.
    pub fn record(&self) -> &'a Record {
        self.record
    }

    /// The delivery of the record: its identity, lane and headers.
    pub fn delivery(&self) -> &'a Delivery {
        &self.record.delivery
    }

    /// The shared value of this type.
    pub fn state<T: Clone + Send + Sync + 'static>(&self) -> Result<State<T>, HandlerError> {
        self.states.get()
    }

    /// All shared values.
    pub fn states(&self) -> &'a States {
        self.states
    }
}
