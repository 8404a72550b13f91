use keylane::{HandlerError, OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "single", batch = 10)]
async fn single_event(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "unsaid")]
async fn unsaid(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "zero", batch = 0)]
async fn zero(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "zero-mixed", batch(size = 0, mixed))]
async fn zero_mixed(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "sizeless", batch(mixed))]
async fn sizeless(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "valueless", batch)]
async fn valueless(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
