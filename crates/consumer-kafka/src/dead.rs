//! Dead letters: the message as it came, with headers that say why it is there.

use std::{sync::Arc, time::Duration};

use keylane::HandlerError;
use rdkafka::{
    Message as _,
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord, Producer},
};

use crate::{
    config::{ConfigError, ConsumerConfig},
    message::Message,
};

/// The headers that a dead letter has beside those that it came with.
pub mod header {
    /// The topic it came from.
    pub const TOPIC: &str = "dead_letter_topic";
    /// The partition it came from.
    pub const PARTITION: &str = "dead_letter_partition";
    /// Its offset there.
    pub const OFFSET: &str = "dead_letter_offset";
    /// The group that could not handle it.
    pub const GROUP: &str = "dead_letter_group";
    /// The event id.
    pub const EVENT_ID: &str = "dead_letter_event_id";
    /// How often it was tried.
    pub const ATTEMPTS: &str = "dead_letter_attempts";
    /// The class of the last error, if it has one.
    pub const CLASS: &str = "dead_letter_error_class";
    /// The text of the last error, up to 1,000 bytes.
    pub const ERROR: &str = "dead_letter_error";
}

const LONGEST_ERROR: usize = 1000;

#[derive(Clone)]
pub(crate) struct DeadLetters {
    producer: FutureProducer,
    topic: Arc<str>,
    group: Arc<str>,
}

impl DeadLetters {
    pub(crate) fn new(config: &ConsumerConfig, topic: &str) -> Result<Self, ConfigError> {
        let producer = config.producer().create();
        let producer = producer.map_err(|error| ConfigError::Client(error.to_string()))?;
        Ok(Self { producer, topic: topic.into(), group: config.group.as_str().into() })
    }

    /// Sends a message; it is there when this returns without an error.
    pub(crate) async fn send(
        &self,
        message: &Message,
        attempts: u32,
        error: &HandlerError,
    ) -> Result<(), rdkafka::error::KafkaError> {
        let (partition, offset) = (message.partition().to_string(), message.offset().to_string());
        let (attempts, text) = (attempts.to_string(), error.text(LONGEST_ERROR));
        let ours = [
            (header::TOPIC, message.topic()),
            (header::PARTITION, &partition),
            (header::OFFSET, &offset),
            (header::GROUP, &self.group),
            (header::EVENT_ID, message.event_id()),
            (header::ATTEMPTS, &attempts),
            (header::CLASS, error.fault().class.unwrap_or_default()),
            (header::ERROR, &text),
        ];
        let mut headers = OwnedHeaders::new_with_capacity(ours.len() + 8);
        for header in message.raw.headers().into_iter().flat_map(Headers::iter) {
            // Those of an earlier time among the dead letters would contradict ours.
            if !ours.iter().any(|(name, _)| *name == header.key) {
                headers = headers.insert(Header { key: header.key, value: header.value });
            }
        }
        for (key, value) in ours.iter().filter(|(_, value)| !value.is_empty()) {
            headers = headers.insert(Header { key, value: Some(value.as_bytes()) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(&self.topic).headers(headers);
        if let Some(key) = message.raw.key() {
            record = record.key(key);
        }
        if let Some(payload) = message.raw.payload() {
            record = record.payload(payload);
        }
        self.producer.send(record, Duration::from_secs(10)).await.map(drop).map_err(|(error, _)| error)
    }

    /// The client can send nothing more: a new one is needed.
    pub(crate) fn is_broken(&self) -> bool {
        self.producer.client().fatal_error().is_some()
    }

    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }
}
