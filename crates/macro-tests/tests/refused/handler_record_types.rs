use keylane::{HandlerError, OutboxEvent, Record, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "neither")]
async fn neither(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "both", every, types("order.placed"))]
async fn both(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "none", types())]
async fn none(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "bad", types("order placed"))]
async fn bad(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "typed", types("order.paid"))]
async fn typed(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
