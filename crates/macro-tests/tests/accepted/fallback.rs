//! Fallback handlers: of one handler, and for all others.

use keylane::{Failure, HandlerError, OutboxEvent, Record, State, handlers, outbox_fallback_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_fallback_handler(of = "bookkeeper")]
async fn refused(
    event: OrderPlaced,
    failure: &Failure,
    State(log): State<String>,
) -> Result<(), std::fmt::Error> {
    let _ = (event.id, &failure.error, log);
    Ok(())
}

#[outbox_fallback_handler(of = "shipping")]
async fn raw(record: &Record) -> Result<(), HandlerError> {
    let _ = &record.payload;
    Ok(())
}

#[outbox_fallback_handler(default)]
async fn any_other(
    record: &Record,
    State(_): State<u8>,
    failure: &keylane::Failure,
) -> Result<(), HandlerError> {
    Err(HandlerError::permanent(format!("{} after {} attempts", record.delivery.key, failure.attempts)))
}

#[test]
fn are_accepted() {
    let _ = handlers![refused, raw, any_other];
}
