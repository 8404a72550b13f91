//! Sends the records of a Keylane outbox to HTTP endpoints: **at least once**, **in order per key**, and
//! signed as in [Standard Webhooks](https://www.standardwebhooks.com).
//!
//! A [`WebhookSink`] is a handler. A [`Route`] decides the URL, the headers and the body of a record's
//! request.
//!
//! ```no_run
//! use keylane::{Outbox, memory::MemoryPool};
//! use keylane_webhook::{Route, Secret, WebhookConfig, WebhookSink};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = Secret::parse(&std::env::var("WEBHOOK_SECRET")?)?; // whsec_…
//! let sink = WebhookSink::new(WebhookConfig::new().secret(secret).source("/shop"))?
//!     .route(Route::to("https://example.com/hooks").events(["order.*"]));
//! let outbox = Outbox::builder(MemoryPool::new()).handler(sink.registration("webhook")).build().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The sink refuses addresses that are not public, and checks them after name resolution. `docs/webhook.md`
//! in the repository describes all settings and all errors.

mod address;
mod away;
mod client;
mod config;
mod connect;
mod request;
mod sign;
mod sink;
mod verdict;

pub use address::{Network, NetworkError, not_public};
pub use config::{ConfigError, WebhookConfig};
pub use keylane_message::{Form, Message, Route, RouteConfig, Sink, Template, route};
pub use sign::{Secret, SecretError};
pub use sink::WebhookSink;
pub use verdict::{SendError, Verdict, verdict};
