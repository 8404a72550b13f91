//! Transactional handlers: the connection of the completing transaction.

use keylane::{
    Delivery, HandlerError, OutboxEvent, Record, State, handlers, outbox_handler,
    sqlx::{self, PgConnection},
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: i64,
}

#[outbox_handler(id = "ledger", transactional, retry(fixed, delay = "1s"))]
async fn ledger(
    event: OrderPlaced,
    State(factor): State<i64>,
    tx: &mut PgConnection,
    delivery: &Delivery,
) -> Result<(), sqlx::Error> {
    let statement = sqlx::query("INSERT INTO ledger VALUES ($1, $2)").bind(event.id * factor);
    statement.bind(delivery.key.as_str()).execute(&mut *tx).await?;
    Ok(())
}

#[outbox_handler(id = "copy", transactional, every)]
async fn copy(record: &Record, tx: &mut keylane::sqlx::postgres::PgConnection) -> Result<(), HandlerError> {
    sqlx::query("INSERT INTO copy VALUES ($1)").bind(&record.payload).execute(tx).await?;
    Ok(())
}

#[outbox_handler(id = "books", transactional, batch(size = 500, mixed))]
async fn books(
    events: Vec<OrderPlaced>,
    tx: &mut PgConnection,
    deliveries: &[&Delivery],
    State(factor): State<i64>,
) -> Result<(), sqlx::Error> {
    for (event, delivery) in events.iter().zip(deliveries) {
        let statement = sqlx::query("INSERT INTO books VALUES ($1, $2)").bind(event.id * factor);
        statement.bind(delivery.key.as_str()).execute(&mut *tx).await?;
    }
    Ok(())
}

#[outbox_handler(id = "plain", transactional, batch = 10)]
async fn plain(_: Vec<OrderPlaced>, _: &mut PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[test]
fn are_accepted() {
    let _ = handlers![ledger, copy, books, plain];
}
