use keylane::{HandlerError, Record, outbox_handler};

#[outbox_handler(id = "unknown", every, retries = 3)]
async fn unknown(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "twice", every, timeout = "1s", timeout = "2s")]
async fn twice(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "flag", every = true)]
async fn flag(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "bool", every, stop_on_first_failure = "no")]
async fn not_bool(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "value", every, stop_on_first_failure)]
async fn no_value(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "word", every, on_failure = "blocked")]
async fn word(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "crate", every, crate = "keylane")]
async fn library(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
