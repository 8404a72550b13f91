//! One mistake is reported once, though the handler is named again further down.

use keylane::{HandlerError, Record, handlers, outbox_handler};

#[outbox_handler(id = "unitless", every, timeout = "30")]
async fn unitless(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "number", every, timeout = 30)]
async fn number(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "zero", every, timeout = "0s")]
async fn zero(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "retry", every, retry(fixed, delay = "five seconds"))]
async fn in_words(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {
    let _ = handlers![unitless, in_words];
}
