use keylane::{HandlerError, Record, outbox_handler};

#[outbox_handler(id = "nothing", every)]
async fn nothing(_: &Record) {}

#[outbox_handler(id = "value", every)]
async fn value(_: &Record) -> Result<u32, HandlerError> {
    Ok(1)
}

fn main() {}
