use keylane::{HandlerError, OutboxEvent, Record, State, outbox_handler};

#[outbox_handler(id = "type")]
async fn of_type<E: OutboxEvent>(_: E) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "impl")]
async fn of_impl(_: impl OutboxEvent) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "lifetime", every)]
async fn of_lifetime<'a>(_: &'a Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "where", every)]
async fn of_where(_: &Record, _: State<u8>) -> Result<(), HandlerError>
where
    u8: Copy,
{
    Ok(())
}

fn main() {}
