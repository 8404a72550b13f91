//! Handlers of the messages of a topic: each form, and each kind of error.

use keylane::sqlx::{self, PgConnection, Postgres};
use keylane_consumer::{
    Consumer, ConsumerConfig, Declared, HandlerError, Inbox, Message, MessageHandler, message_handler,
};

#[derive(serde::Deserialize)]
struct Order {
    number: i64,
}

#[message_handler(topic = "orders", group = "billing")]
async fn bill(tx: &mut PgConnection, order: Order) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO bill VALUES ($1)").bind(order.number).execute(tx).await?;
    Ok(())
}

/// Any connection of PostgreSQL, and the message as it is.
#[message_handler(topic = "copies")]
pub async fn copy(
    tx: &mut keylane::sqlx::postgres::PgConnection,
    message: &Message,
) -> Result<(), HandlerError> {
    sqlx::query("INSERT INTO copy VALUES ($1)").bind(message.payload()).execute(tx).await?;
    Ok(())
}

// A name that the attribute uses itself, and an argument that is taken apart.
#[message_handler(topic = "mails")]
async fn message(Order { number }: Order) -> std::io::Result<()> {
    let _ = number;
    Ok(())
}

#[message_handler(topic = "raw", crate = elsewhere::consumer)]
async fn raw(message: &Message) -> Result<(), HandlerError> {
    let _ = message.event_id();
    Ok(())
}

mod elsewhere {
    pub(super) use keylane_consumer as consumer;
}

fn start(inbox: Inbox<Postgres>) {
    let _ = Consumer::builder(ConsumerConfig::new("127.0.0.1:9092", "billing"))
        .transactional_handler(inbox.clone(), bill {})
        .transactional_handler(inbox.clone(), copy {})
        .claimed_handler(inbox, message {})
        .handler(raw {});
}

fn handles(_: impl MessageHandler + Declared) {}

#[test]
fn are_accepted() {
    let _ = start;
    handles(raw {});
    assert_eq!((bill::TOPIC, bill::GROUP), ("orders", Some("billing")));
    assert_eq!((copy::TOPIC, copy::GROUP), ("copies", None));
    // The functions are still there to be called.
    drop(message(Order { number: 7 }));
}
