//! A mistake in the attribute does not hide one in the function.

use keylane::{HandlerError, Record, outbox_handler};

#[outbox_handler(every)]
fn keep_books(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
