//! Events and handlers that a macro of the user writes.

use keylane::{Delivery, HandlerError, OutboxEvent, handler::Declare, outbox_handler};
use serde::{Deserialize, Serialize};

macro_rules! event {
    ($name:ident { $field:ident: $ty:ty }, $record_type:literal, $key:literal) => {
        #[derive(Serialize, Deserialize, OutboxEvent)]
        #[outbox(record_type = $record_type, key = $key)]
        struct $name {
            $field: $ty,
        }
    };
}

macro_rules! handler {
    ($name:ident, $id:literal, $event:ty, $told:ty) => {
        #[outbox_handler(id = $id, timeout = "1s")]
        async fn $name(_: $event, _: $told) -> Result<(), HandlerError> {
            Ok(())
        }
    };
}

event!(OrderPlaced { id: u64 }, "order.placed", "order-{id}");
handler!(ship, "ship", OrderPlaced, &Delivery);

#[test]
fn are_accepted() {
    assert_eq!(OrderPlaced { id: 7 }.key(), "order-7");
    let _ = <ship as Declare>::declare();
}
