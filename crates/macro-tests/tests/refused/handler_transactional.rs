use keylane::{
    HandlerError, OutboxEvent, outbox_handler,
    sqlx::{Postgres, PgConnection, Transaction},
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "none", transactional)]
async fn no_connection(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "unsaid")]
async fn unsaid(_: OrderPlaced, _: &mut PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "two", transactional)]
async fn two(_: OrderPlaced, _: &mut PgConnection, _: &mut PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "transaction", transactional)]
async fn transaction(_: OrderPlaced, _: &mut Transaction<'_, Postgres>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "batch", transactional, batch = 10)]
async fn batch(_: Vec<OrderPlaced>, _: &mut PgConnection) -> Vec<Result<(), HandlerError>> {
    vec![Ok(())]
}

#[outbox_handler(id = "batch-alone", transactional, batch = 10)]
async fn batch_alone(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "batch-of-one", transactional, batch = 10)]
async fn batch_of_one(_: OrderPlaced, _: &mut PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "batch", batch = 10)]
async fn batch_unsaid(_: Vec<OrderPlaced>, _: &mut PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
