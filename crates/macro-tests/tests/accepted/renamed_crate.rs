//! The library under another name.

use self::my::keylane::{Failure, HandlerError, OutboxEvent, outbox_fallback_handler, outbox_handler};
use serde::{Deserialize, Serialize};

mod my {
    pub(crate) use ::keylane;
}

// Hides the extern crate for paths that forget the leading `::` and the option.
#[allow(unused)]
mod keylane {}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(crate = my::keylane, record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: u64,
}

#[outbox_handler(id = "single", retry(exponential), on_failure = "block", crate = crate::renamed_crate::my::keylane)]
async fn single(_: OrderPlaced) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "several", batch = 10, crate = my::keylane)]
async fn several(_: Vec<OrderPlaced>) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_fallback_handler(of = "single", crate = my::keylane)]
async fn refused(_: OrderPlaced, _: &Failure) -> Result<(), HandlerError> {
    Ok(())
}

#[test]
fn is_accepted() {
    let _ = <single as my::keylane::handler::Declare>::declare();
    let _ = <several as my::keylane::handler::Declare>::declare();
    let _ = <refused as my::keylane::handler::Declare>::declare();
}
