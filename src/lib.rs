//! A transactional outbox: write your business row and its event in one transaction; Keylane delivers
//! the event to your handler, **at least once** and **in order per key**, from a cluster of replicas
//! that share nothing but your database.
//!
//! # Five minutes
//!
//! 1. Name an event: its type, which never changes, and the key that orders it.
//! 2. Write a handler. It may be called again for the same event, with the same [`Delivery::event_id`].
//! 3. Build an [`Outbox`] on your sqlx pool, [`migrate`](Outbox::migrate) once, [`start`](Outbox::start)
//!    the workers.
//! 4. [`schedule`](Outbox::schedule) in your own transaction, and [`wake`](Outbox::wake) after the
//!    commit, or let [`transaction`](Outbox::transaction) do both.
//! 5. [`shutdown`](Running::shutdown) hands the partitions over to the other replicas.
//!
//! ```
//! use keylane::{Config, Delivery, Outbox, OutboxEvent, State, handlers, outbox_handler};
//! use serde::{Deserialize, Serialize};
//! # use keylane::memory::MemoryPool;
//!
//! #[derive(Serialize, Deserialize, OutboxEvent)]
//! #[outbox(record_type = "order.placed", key = "order-{id}")]
//! struct OrderPlaced {
//!     id: u64,
//! }
//!
//! #[outbox_handler(id = "mailer", retry(exponential, max_retries = 5), timeout = "10s")]
//! async fn send_mail(
//!     event: OrderPlaced,
//!     delivery: &Delivery,
//!     State(sent): State<tokio::sync::mpsc::UnboundedSender<String>>,
//! ) -> Result<(), std::io::Error> {
//!     let _ = sent.send(format!("order {} in attempt {}", event.id, delivery.attempt));
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = MemoryPool::new(); // or a PgPool, MySqlPool, SqlitePool
//! let (sent, mut mails) = tokio::sync::mpsc::unbounded_channel::<String>();
//! let outbox =
//!     Outbox::builder(pool).config(Config::default()).state(sent).handlers(handlers![send_mail]).build().await?;
//! outbox.migrate().await?;
//! let running = outbox.start().await?;
//!
//! outbox.transaction(async |tx| outbox.schedule(tx, &OrderPlaced { id: 42 }).await).await?;
//!
//! assert_eq!(mails.recv().await.as_deref(), Some("order 42 in attempt 1"));
//! assert!(running.shutdown().await.graceful);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | to | see |
//! | --- | --- |
//! | schedule | [`Outbox`], [`ScheduleOptions`], [`RawEvent`]; without sqlx: [`sql`] |
//! | handle | [`handler`]: typed, generic, batch, transactional, fallback |
//! | set | [`Config`] and its parts, [`RetryPolicy`] |
//! | administrate, repair failed records | [`Outbox::admin`], [`admin`] |
//! | watch | [`telemetry`]: [`Signal`], [`Observer`]; [`health`]: [`Running::health`] |
//! | encode events in another form than JSON | [`encoding`] |
//! | be generic over the database, sort its errors | [`database`] |
//! | test | [`memory`]: the same semantics without a server, on a clock that can be paused |
//! | know how it decides | [`rules`]: pure functions |
//!
//! # Features
//!
//! | feature | brings |
//! | --- | --- |
//! | `macros` (default) | `#[derive(OutboxEvent)]`, `#[outbox_handler]`, `#[outbox_fallback_handler]` |
//! | `postgres`, `mysql`, `sqlite` | that database, by sqlx; `mysql` is for MariaDB, too |
//! | `cbor`, `message-pack`, `protobuf` | that [codec](encoding) of payloads, beside JSON |
//! | `tls-rustls` | TLS by rustls, with the root certificates of the system |
//! | `mysql-rsa` | the password exchange of MySQL 8 on connections without TLS |
//!
//! The command `keylane` is a crate of its own, `keylane-cli`. An application that wants another TLS enables one of
//! sqlx's `tls-*` features itself.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
pub mod database;
pub mod encoding;
pub mod handler;
pub mod health;
#[doc(hidden)]
pub mod inner;
pub mod memory;
pub mod partition;
pub mod rules;
pub mod sql;
pub mod telemetry;

#[cfg(all(doctest, feature = "macros", feature = "postgres"))]
mod pages;

mod builder;
mod claiming;
mod clock;
mod cluster;
mod codec;
mod commit_wake;
mod config;
mod delivery;
mod duration;
mod instance;
mod membership;
mod name;
mod naming;
mod notifications;
mod outbox;
mod ownership;
mod parts;
mod patience;
mod readiness;
mod record;
mod running;
mod runtime;
mod schedule;
mod setters;
mod statement;
mod store;
mod targets;
mod ticker;
mod unwind;
mod vitals;
mod wake;

pub use builder::{BuildError, OutboxBuilder};
pub use cluster::ClusterConfig;
pub use config::{Config, ConfigError, OrderLevel, RetentionConfig, ScheduleConfig};
pub use delivery::DeliveryConfig;
pub use handler::{
    BatchHandler, BatchResults, ClassifiedError, Failure, FallbackHandler, GenericHandler, Handler,
    HandlerError, RecordTypes, Registration, State, TransactionalHandler,
};
pub use name::Name;
pub use outbox::{Outbox, TransactionError};
pub use readiness::StartError;
pub use record::{Delivery, OnFailure, OutboxEvent, Record, RecordId};
pub use rules::retry::{Backoff, RetryPolicy};
pub use running::{Finished, Running, ShutdownReport};
pub use schedule::{RawEvent, ScheduleError, ScheduleOptions, Scheduled};
pub use sqlx;
pub use store::{Completed, DatabaseConfig, Mode, SchemaError, StoreError};
pub use telemetry::{Observer, Signal};
pub use tokio_util;

#[cfg(feature = "macros")]
pub use keylane_macros::{OutboxEvent, outbox_fallback_handler, outbox_handler};

/// The registrations of handlers declared by `#[outbox_handler]` and `#[outbox_fallback_handler]`.
#[macro_export]
macro_rules! handlers {
    ($($handler:path),* $(,)?) => {
        [$(<$handler as $crate::handler::Declare>::declare()),*]
    };
}
