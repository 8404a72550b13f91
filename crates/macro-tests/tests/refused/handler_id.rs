use keylane::{HandlerError, Record, outbox_handler};

#[outbox_handler(every)]
async fn nameless(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "", every)]
async fn empty(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "keep books", every)]
async fn spaced(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = keep_books, every)]
async fn unquoted(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
