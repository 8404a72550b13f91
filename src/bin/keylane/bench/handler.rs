//! The handlers of a bench: they count, or write one row, and nothing else.

use std::sync::Arc;

use keylane::{BatchHandler, BatchResults, Delivery, Handler, HandlerError, TransactionalHandler};

use super::{
    Engine,
    tally::{Event, Tally},
};

/// The id of the one handler that every bench has.
pub(super) const HANDLER: &str = "bench";

/// Counts what it is given, whatever its form.
pub(super) struct Count(pub(super) Arc<Tally>);

impl Handler for Count {
    type Event = Event;

    async fn handle(&self, event: Event, delivery: &Delivery) -> Result<(), HandlerError> {
        self.0.handle(delivery.id, event);
        Ok(())
    }
}

impl BatchHandler for Count {
    type Event = Event;

    async fn handle(&self, events: Vec<Event>, deliveries: &[&Delivery]) -> BatchResults {
        let each = events.into_iter().zip(deliveries);
        each.map(|(event, delivery)| {
            self.0.handle(delivery.id, event);
            Ok(())
        })
        .collect()
    }
}

impl<E: Engine> TransactionalHandler<E> for Count {
    type Event = Event;

    async fn handle(
        &self,
        event: Event,
        tx: &mut E::Connection,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        E::add_effect(tx, &delivery.key).await.map_err(HandlerError::new)?;
        self.0.handle(delivery.id, event);
        Ok(())
    }
}
