//! Every way to write the key of an event.

use std::borrow::Cow;

use keylane::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "flight.departed", key = "aircraft-{tail}")]
struct Named {
    tail: String,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "billing:v2/eu_west-1", key = "{0}/{1.id:05}")]
struct Tuple(char, Order);

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "{{{order.customer.0}}}-{order.id:>4}-{r#type}")]
struct Nested {
    order: Order,
    r#type: u8,
}

#[derive(Serialize, Deserialize, Default)]
struct Order {
    id: u32,
    customer: (String,),
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "clock.ticked")]
#[outbox(key = "{{clock}}", constant_key)]
struct Constant;

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "door", key_with = Door::name)]
enum Door {
    Opened(String),
    Shut,
}

impl Door {
    fn name(&self) -> String {
        match self {
            Self::Opened(name) => name.clone(),
            Self::Shut => "front".to_owned(),
        }
    }
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "light", key_with = light)]
struct Light(String);

fn light(event: &Light) -> &str {
    &event.0
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "note", key = "{0}", codec = json)]
struct Note(u8);

mod codecs {
    pub(super) const BYTE: keylane::encoding::Codec<super::Byte> = keylane::encoding::Codec::new(
        "application/octet-stream",
        |byte| Ok(vec![byte.0]),
        |_| Err("nobody reads it".into()),
    );
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "byte", key = "{0}", codec = codecs::BYTE)]
struct Byte(u8);

#[test]
fn are_accepted() {
    assert_eq!(Named::RECORD_TYPE, "flight.departed");
    assert_eq!(Named { tail: "D-AIUR".to_owned() }.key(), "aircraft-D-AIUR");
    assert_eq!(Tuple('x', Order { id: 42, ..Order::default() }).key(), "x/00042");
    let order = Order { id: 7, customer: ("ann".to_owned(),) };
    assert_eq!(Nested { order, r#type: 1 }.key(), "{ann}-   7-1");
    assert!(matches!(Constant.key(), Cow::Borrowed("{clock}")));
    assert_eq!(Door::Opened("back".to_owned()).key(), "back");
    assert_eq!(Door::Shut.key(), "front");
    assert!(matches!(Light("hall".to_owned()).key(), Cow::Borrowed("hall")));
}
