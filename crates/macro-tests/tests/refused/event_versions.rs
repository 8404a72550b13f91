use keylane::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "a", key = "{id}", version = 0)]
struct FromZero {
    id: u8,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "b", key = "{id}", upcast = up)]
struct NothingOlder {
    id: u8,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "c", key = "{id}", version = "2")]
struct Quoted {
    id: u8,
}

fn main() {}
