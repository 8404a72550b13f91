use keylane_consumer::{
    Consumer, ConsumerConfig, HandlerError, Inbox, Message, MessageHandler, message_handler,
};

struct Order;

#[message_handler(topic = "orders")]
async fn not_decoded(_: Order) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn no_error(_: &Message) -> Result<(), String> {
    Ok(())
}

#[message_handler(topic = "orders")]
async fn no_result(_: &Message) {}

#[message_handler(topic = "orders")]
async fn transactional(_: &mut keylane::sqlx::PgConnection, _: &Message) -> Result<(), HandlerError> {
    Ok(())
}

fn handles(_: impl MessageHandler) {}

fn another_database(inbox: Inbox<keylane::sqlx::MySql>) {
    let config = ConsumerConfig::new("127.0.0.1:9092", "billing");
    let _ = Consumer::builder(config).transactional_handler(inbox, transactional {});
}

fn main() {
    handles(transactional {});
}
