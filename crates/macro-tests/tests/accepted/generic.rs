//! Generic handlers: raw records, of every type or of some.

use keylane::{HandlerError, Record, State, handlers, outbox_handler};

#[outbox_handler(id = "audit", every)]
async fn audit(record: &Record, State(limit): State<usize>) -> Result<(), HandlerError> {
    match record.payload.len() > limit {
        true => Err(HandlerError::permanent("too large")),
        false => Ok(()),
    }
}

#[outbox_handler(id = "forward", types("order.placed", "order.paid"), timeout = "5s")]
async fn forward(record: &keylane::Record) -> Result<(), std::fmt::Error> {
    let _ = &record.delivery.headers;
    Ok(())
}

#[test]
fn are_accepted() {
    let _ = handlers![audit, forward];
}
