//! Sends the records of a Keylane outbox to Kafka, **at least once** and **in order per key**.
//!
//! A [`KafkaSink`] is a handler. A [`Route`] decides the topic, key, headers and body of a record's message.
//!
//! ```no_run
//! use keylane::{Outbox, memory::MemoryPool};
//! use keylane_kafka::{KafkaConfig, KafkaSink, Route};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let sink = KafkaSink::new(KafkaConfig::new("127.0.0.1:9092").source("/shop"))?
//!     .route(Route::to("orders").events(["order.*"]).header("team", "sales"))
//!     .route(Route::to("everything-else"));
//! let outbox = Outbox::builder(MemoryPool::new()).handler(sink.registration("kafka")).build().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A sink with one route is one expression:
//!
//! ```no_run
//! # use keylane_kafka::{KafkaConfig, KafkaSink, route};
//! # fn run(cfg: KafkaConfig) -> Result<keylane::Registration, Box<dyn std::error::Error>> {
//! let kafka = route(KafkaSink::new(cfg)?)
//!     .events(["order.*"])
//!     .to("orders")
//!     .key(|record| record.delivery.key.to_string())
//!     .header("team", "sales")
//!     .registration("kafka");
//! # Ok(kafka)
//! # }
//! ```
//!
//! A [`KafkaProducer`] sends events that no outbox has, in the same forms and to the same partitions.
//!
//! `docs/kafka.md` in the repository describes acknowledgements, duplicates, all settings and all errors.

mod call;
mod config;
mod probe;
mod producer;
mod producers;
mod session;
mod sink;
mod verdict;

pub use config::{ConfigError, KafkaConfig};
pub use keylane_message::{Event, Form, Message, Route, RouteConfig, Sink, Template, route};
pub use probe::{ProbeError, TopicState};
pub use producer::KafkaProducer;
pub use rdkafka::error::RDKafkaErrorCode;
pub use sink::KafkaSink;
pub use verdict::{NotSent, SendError, Verdict, verdict};
