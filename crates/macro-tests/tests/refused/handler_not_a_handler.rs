use keylane::{HandlerError, Record, outbox_fallback_handler, outbox_handler};

#[outbox_handler(id = "not-async", every)]
fn not_async(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "struct", every)]
struct NoFunction;

#[outbox_handler(id = "unsafe", every)]
async unsafe fn not_safe(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

struct Books;

impl Books {
    #[outbox_handler(id = "method", every)]
    async fn method(&self, _: &Record) -> Result<(), HandlerError> {
        Ok(())
    }

    #[outbox_fallback_handler(default)]
    async fn fallback_method(self, _: &Record) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn main() {}
