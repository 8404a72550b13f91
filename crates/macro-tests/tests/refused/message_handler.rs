use keylane_consumer::{HandlerError, Message, message_handler};

#[message_handler(topic = "orders")]
fn not_async(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
struct NoFunction;

#[message_handler(topic = "orders")]
async unsafe fn not_safe(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn generic<T: Send>(_: T) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn nothing() -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn exclusive(_: &mut Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn connection_last(_: &Message, _: &mut keylane::sqlx::PgConnection) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn too_many(_: &mut keylane::sqlx::PgConnection, _: &Message, _: u32) -> Result<(), HandlerError> {
    Ok(())
}

struct Books;

impl Books {
    #[message_handler(topic = "orders")]
    async fn method(&self, _: &Message) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn main() {}
