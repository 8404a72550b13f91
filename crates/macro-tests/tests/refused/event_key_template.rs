use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "a", key = "order-{id")]
struct Unclosed {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "b", key = "order-id}")]
struct Unopened {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "c", key = "order-{}")]
struct Unnamed {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "d", key = "{id:?}")]
struct Debugged {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "e", key = "")]
struct Empty {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "f", key = "{id:width$}")]
struct Wide {
    id: u64,
}

fn main() {}
