//! Consumes Kafka **in order per key**, with an inbox, retries and dead letters.
//!
//! ```no_run
//! use keylane::HandlerError;
//! use keylane_consumer::{Consumer, ConsumerConfig, Message, TransactionalMessageHandler};
//! use keylane_inbox::Inbox;
//! use sqlx::{PgConnection, Postgres};
//!
//! struct Bill;
//!
//! impl TransactionalMessageHandler<Postgres> for Bill {
//!     async fn handle(&self, tx: &mut PgConnection, message: &Message) -> Result<(), HandlerError> {
//!         sqlx::query("INSERT INTO bill (event_id) VALUES ($1)").bind(message.event_id()).execute(tx).await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn run(inbox: Inbox<Postgres>) -> Result<(), Box<dyn std::error::Error>> {
//! let running = Consumer::builder(ConsumerConfig::new("127.0.0.1:9092", "billing"))
//!     .transactional("orders", inbox, Bill)
//!     .dead_letters("billing.dead")
//!     .start()?;
//! // … until the service ends …
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Messages of one key are handled one after another, messages of different keys at the same time. An offset
//! is committed when all messages before it are finished. A message that fails is tried again while its key
//! waits, and then goes to the dead-letter topic. Other keys go on meanwhile.
//!
//! `docs/consuming.md` in the repository describes the guarantees, all settings and all errors.

mod budget;
mod commits;
mod config;
mod consumer;
mod dead;
mod handler;
mod message;
mod outage;
mod partition;
mod pump;
mod run;
mod shares;
mod source;

pub use config::{ConfigError, ConsumerConfig};
pub use consumer::{Consumer, ConsumerBuilder, Running, ShutdownReport};
pub use handler::{Declared, MessageHandler, TransactionalMessageHandler};
pub use keylane::{HandlerError, RetryPolicy};
pub use keylane_inbox::{Inbox, InboxDatabase};
pub use keylane_macros::message_handler;
pub use message::Message;
pub use source::PartitionLag;
