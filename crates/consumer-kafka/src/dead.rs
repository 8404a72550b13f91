//! Dead letters: the unchanged message with headers that name the cause.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use keylane::HandlerError;
use keylane_message::Cause;
use rdkafka::{
    Message as _,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord, Producer},
};

use crate::{
    config::{ConfigError, ConsumerConfig},
    message::Message,
};

/// The headers beside those of every dead letter.
const PARTITION: &str = "keylane-partition";
const OFFSET: &str = "keylane-offset";
const LONGEST_ERROR: usize = 1000;

#[derive(Clone)]
pub(crate) struct DeadLetters {
    producer: FutureProducer,
    /// Whether a message got no answer in time. The producer may have forgotten its brokers, as the client of the
    /// consumer may.
    timed_out: Arc<AtomicBool>,
    topic: Arc<str>,
    group: Arc<str>,
}

impl DeadLetters {
    pub(crate) fn new(config: &ConsumerConfig, topic: &str) -> Result<Self, ConfigError> {
        let producer = config.producer().create();
        let producer = producer.map_err(|error| ConfigError::Client(error.to_string()))?;
        let (topic, group) = (topic.into(), config.group.as_str().into());
        Ok(Self { producer, timed_out: Arc::default(), topic, group })
    }

    /// Sends a message and waits for the acknowledgement.
    pub(crate) async fn send(
        &self,
        message: &Message,
        attempts: u32,
        error: &HandlerError,
    ) -> Result<(), KafkaError> {
        let mut cause = Cause::new(error.text(LONGEST_ERROR), attempts, message.topic(), &self.group);
        cause.class = error.fault().class;
        cause.kind = match cause.class {
            Some(kind @ ("timeout" | "panic" | "decode")) => kind,
            _ => error.kind().as_str(),
        };
        cause.event_id = Some(message.event_id().into());
        let mut ours = cause.headers();
        ours.push((PARTITION.into(), message.partition().to_string().into()));
        ours.push((OFFSET.into(), message.offset().to_string().into()));
        let mut headers = OwnedHeaders::new_with_capacity(ours.len() + 8);
        for header in message.raw.headers().into_iter().flat_map(Headers::iter) {
            // The headers of an earlier dead letter would contradict these.
            if !ours.iter().any(|(name, _)| *name == header.key) {
                headers = headers.insert(Header { key: header.key, value: header.value });
            }
        }
        for (key, value) in &ours {
            headers = headers.insert(Header { key, value: Some(value.as_bytes()) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(&self.topic).headers(headers);
        if let Some(key) = message.raw.key() {
            record = record.key(key);
        }
        if let Some(payload) = message.raw.payload() {
            record = record.payload(payload);
        }
        let sent = self.producer.send(record, Duration::from_secs(10)).await;
        sent.map(drop).map_err(|(error, _)| {
            if error.rdkafka_error_code() == Some(Code::MessageTimedOut) {
                self.timed_out.store(true, Relaxed);
            }
            error
        })
    }

    /// Whether the client cannot send any more, or has not for long, so that a new one is needed.
    pub(crate) fn is_broken(&self) -> bool {
        self.timed_out.load(Relaxed) || self.producer.client().fatal_error().is_some()
    }

    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }
}
