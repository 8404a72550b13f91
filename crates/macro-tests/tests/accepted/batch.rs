//! Batch handlers: one result a record, or one for all.

use keylane::{BatchResults, Delivery, HandlerError, OutboxEvent, State, handlers, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "each", batch = 100)]
async fn each(events: Vec<OrderPlaced>, deliveries: &[&Delivery]) -> Vec<Result<(), std::fmt::Error>> {
    events
        .iter()
        .zip(deliveries)
        .map(|(event, _)| if event.id > 0 { Ok(()) } else { Err(std::fmt::Error) })
        .collect()
}

#[outbox_handler(id = "together", batch(size = 50, mixed))]
async fn together(events: Vec<OrderPlaced>, State(limit): State<u64>) -> Result<(), HandlerError> {
    match events.iter().all(|event| event.id < limit) {
        true => Ok(()),
        false => Err(HandlerError::new("over the limit")),
    }
}

#[outbox_handler(id = "alias", batch(size = 1), timeout = "10s")]
async fn alias(
    deliveries: std::vec::Vec<OrderPlaced>,
    State(_): State<u64>,
    told: &[&Delivery],
) -> BatchResults {
    deliveries.into_iter().zip(told).map(|_| Ok(())).collect()
}

#[test]
fn are_accepted() {
    let _ = handlers![each, together, alias];
}
