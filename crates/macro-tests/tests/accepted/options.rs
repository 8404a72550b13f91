//! Every option of `#[outbox_handler]`.

use keylane::{HandlerError, OutboxEvent, handlers, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(
    id = "all",
    retry(
        exponential,
        max_retries = 3,
        initial = "2s",
        multiplier = 2.0,
        max_delay = "1m",
        jitter = 0.1,
        retry_on = ["timeout", "busy"],
        never_on = ["refused"],
    ),
    timeout = "1m 30s",
    stop_on_first_failure = false,
    on_failure = "block",
)]
async fn all(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(
    id = "linear",
    retry(linear, initial = "500ms", increment = "1s", jitter = 0),
    on_failure = "continue"
)]
async fn linear(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(retry(fixed, delay = "5s", max_retries = 10), id = "fixed")]
async fn fixed(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "never", retry(never), stop_on_first_failure = true)]
async fn never(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "default", retry(exponential), timeout = "2h")]
async fn default(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[test]
fn are_accepted() {
    let _ = handlers![all, linear, fixed, never, default];
}
