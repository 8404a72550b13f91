use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "door", key = "door-{id}")]
enum Door {
    Opened { id: u64 },
    Shut { id: u64 },
}

#[derive(OutboxEvent)]
#[outbox(record_type = "bits", key = "{id}")]
union Bits {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "envelope", key = "{id}")]
struct Envelope<T> {
    id: u64,
    content: T,
}

fn main() {}
