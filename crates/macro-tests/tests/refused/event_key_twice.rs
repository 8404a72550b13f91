use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}", key_with = Both::key)]
struct Both {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.paid", key = "order-{id}")]
#[outbox(key = "{id}")]
struct Repeated {
    id: u64,
}

fn main() {}
