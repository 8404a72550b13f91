//! The handlers of a bench: some count, some write one row, some wait.

use std::{sync::Arc, time::Duration};

use keylane::{
    BatchHandler, BatchResults, Delivery, Handler, HandlerError, TransactionalHandler,
    handler::TransactionalBatchHandler,
};

use super::{
    Engine,
    tally::{Event, Tally},
};

/// The id of the one handler that every bench has.
pub(super) const HANDLER: &str = "bench";

/// Counts its records, in each form of a handler.
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

impl<E: Engine> TransactionalBatchHandler<E> for Count {
    type Event = Event;

    async fn handle(
        &self,
        events: Vec<Event>,
        tx: &mut E::Connection,
        deliveries: &[&Delivery],
    ) -> Result<(), HandlerError> {
        for (event, delivery) in events.into_iter().zip(deliveries) {
            TransactionalHandler::<E>::handle(self, event, tx, delivery).await?;
        }
        Ok(())
    }
}

/// A handler that waits before it calls another one.
pub(super) struct Slow<H> {
    pub(super) delay: Duration,
    pub(super) handler: H,
}

impl<H: Handler> Handler for Slow<H> {
    type Event = H::Event;

    async fn handle(&self, event: H::Event, delivery: &Delivery) -> Result<(), HandlerError> {
        tokio::time::sleep(self.delay).await;
        self.handler.handle(event, delivery).await
    }
}

/// Counts a hot key and the others apart.
pub(super) struct Apart {
    pub(super) hot_key: String,
    pub(super) hot: Arc<Tally>,
    pub(super) others: Arc<Tally>,
}

impl Handler for Apart {
    type Event = Event;

    async fn handle(&self, event: Event, delivery: &Delivery) -> Result<(), HandlerError> {
        let tally = if *delivery.key == *self.hot_key { &self.hot } else { &self.others };
        tally.handle(delivery.id, event);
        Ok(())
    }
}
