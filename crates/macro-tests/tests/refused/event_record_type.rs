use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "", key = "{id}")]
struct Empty {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order placed", key = "{id}")]
struct Spaced {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(
    record_type = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    key = "{id}"
)]
struct Long {
    id: u64,
}

fn main() {}
