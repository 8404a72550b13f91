use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "flight.departed", key = "aircraft-{tial}")]
struct Misspelt {
    tail: String,
    day: String,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed", key = "{2}")]
struct Tuple(u64, u64);

#[derive(OutboxEvent)]
#[outbox(record_type = "clock.ticked", key = "{id}")]
struct Unit;

fn main() {}
