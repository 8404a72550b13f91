use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(type = "order.placed", key = "{id}")]
struct Unknown {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = order_placed, key = "{id}")]
struct Unquoted {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed" key = "{id}")]
struct NoComma {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order", constant_key = true)]
struct FlagWithValue {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox("order.placed")]
struct Nameless {
    id: u64,
}

fn main() {}
