use keylane::{Delivery, HandlerError, OutboxEvent, State, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "nothing")]
async fn nothing() -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "borrowed")]
async fn borrowed(_: &OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "state")]
async fn state_first(_: State<u8>, _: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "delivery")]
async fn delivery_first(_: &Delivery, _: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "connection", transactional)]
async fn connection_first(_: &mut keylane::sqlx::PgConnection, _: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "slice", batch = 10)]
async fn slice(_: &[OrderPlaced]) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
