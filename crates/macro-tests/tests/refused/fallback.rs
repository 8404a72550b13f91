use keylane::{Delivery, Failure, HandlerError, OutboxEvent, Record, outbox_fallback_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_fallback_handler]
async fn nobodys(_: OrderPlaced, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "shipping", default)]
async fn both(_: &Record, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(default)]
async fn typed_default(_: OrderPlaced, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "ship ping")]
async fn bad_id(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(id = "shipping")]
async fn unknown(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "shipping")]
async fn batch(_: Vec<OrderPlaced>, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "shipping")]
async fn delivery(_: OrderPlaced, _: &Delivery) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "shipping")]
async fn connection(_: OrderPlaced, _: &mut keylane::sqlx::PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "shipping")]
async fn owned(_: OrderPlaced, _: Failure) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
