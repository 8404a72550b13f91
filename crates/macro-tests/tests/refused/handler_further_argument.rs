use keylane::{Delivery, Failure, HandlerError, OutboxEvent, Record, State, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "value")]
async fn value(_: OrderPlaced, _: u32) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "reference")]
async fn reference(_: OrderPlaced, _: &str) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "owned")]
async fn owned_delivery(_: OrderPlaced, _: Delivery) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "borrowed")]
async fn borrowed_state(_: OrderPlaced, _: &State<u8>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "failure")]
async fn failure(_: OrderPlaced, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "several")]
async fn several_deliveries(_: OrderPlaced, _: &[&Delivery]) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "single", batch = 10)]
async fn single_delivery(_: Vec<OrderPlaced>, _: &Delivery) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "twofold", every)]
async fn twofold(_: &Record, _: &Delivery) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
