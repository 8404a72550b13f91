use keylane::OutboxEvent;

#[derive(OutboxEvent)]
struct Bare {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed")]
struct Keyless {
    id: u64,
}

fn main() {}
