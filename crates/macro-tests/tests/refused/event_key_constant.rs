use keylane::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(record_type = "order.placed", key = "orders")]
struct Constant {
    id: u64,
}

#[derive(OutboxEvent)]
#[outbox(record_type = "order.paid", key = "order-{id}", constant_key)]
struct NotConstant {
    id: u64,
}

fn main() {}
