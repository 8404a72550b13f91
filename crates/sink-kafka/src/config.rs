//! The settings of a sink, and the client properties that follow from them.

use std::{collections::BTreeMap, fmt, time::Duration};

use rdkafka::ClientConfig;

/// The properties that the sink's guarantees rest on.
const OWN: &[&str] = &[
    "acks",
    "request.required.acks",
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.ms",
    "queue.buffering.max.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.timeout.ms",
    "message.send.max.retries",
    "retries",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "topic.metadata.propagation.max.ms",
    "transactional.id",
];

/// The settings of a sink. `docs/kafka.md` lists all of them.
#[derive(Clone)]
#[must_use = "give it to KafkaSink::new"]
pub struct KafkaConfig {
    pub(crate) brokers: String,
    pub(crate) client_id: String,
    pub(crate) source: String,
    pub(crate) linger: Duration,
    pub(crate) patience: Duration,
    pub(crate) retry_after: Duration,
    pub(crate) queue_bytes: usize,
    pub(crate) batch_size: usize,
    pub(crate) concurrency: usize,
    properties: BTreeMap<String, String>,
}

/// A setting that is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A guarantee of the sink rests on the property.
    #[error(
        "the property {name} is the sink's own: it carries the order or the bounds that the sink promises"
    )]
    Own {
        /// The name of the property.
        name: String,
    },
    /// A setting is outside its range.
    #[error("{name} is {value}, but must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
        /// The permitted values.
        range: &'static str,
    },
    /// The client refuses the properties. The text names the property, but not its value, which can be a
    /// secret.
    #[error("the kafka client refuses its properties: {0}")]
    Client(String),
}

/// The debug form shows only the names of properties, because a value can be a secret.
impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field("source", &self.source)
            .field("linger", &self.linger)
            .field("patience", &self.patience)
            .field("retry_after", &self.retry_after)
            .field("queue_bytes", &self.queue_bytes)
            .field("batch_size", &self.batch_size)
            .field("concurrency", &self.concurrency)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

impl KafkaConfig {
    /// Creates the settings. `brokers` are the first brokers to ask, as `host:port,host:port`.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: "keylane".to_owned(),
            source: "/keylane".to_owned(),
            linger: Duration::from_millis(2),
            patience: Duration::from_secs(10),
            retry_after: Duration::from_secs(1),
            queue_bytes: 32 * 1024 * 1024,
            batch_size: 500,
            concurrency: 32,
            properties: BTreeMap::new(),
        }
    }

    /// Sets the name of the client in the broker's logs and quotas. Default `keylane`.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Sets the `source` of the CloudEvents. Default `/keylane`.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the time that a message waits for others of its partition to share a request. Default 2 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the time that one call waits for acknowledgements until the brokers count as away. Default 10 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the time that a key waits until the brokers are tried again. Default 1 s.
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = pause;
        self
    }

    /// Sets the most bytes that wait for acknowledgements, over all calls. Default 32 MiB. At the limit,
    /// calls wait.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Sets the most records per call. Default 500.
    pub fn batch_size(mut self, records: usize) -> Self {
        self.batch_size = records;
        self
    }

    /// Sets the most calls at once. Default 32. Calls that wait for brokers use at most so many of the places
    /// that all handlers share.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Sets a property of librdkafka, such as `security.protocol`. Properties that the sink's guarantees rest
    /// on are refused.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = self.properties.keys().find(|name| OWN.contains(&name.as_str())) {
            return Err(ConfigError::Own { name: name.clone() });
        }
        let range = |name, value: String, range| Err(ConfigError::Range { name, value, range });
        let from_to = |least, most, value: Duration| (least..=most).contains(&value);
        if !from_to(Duration::from_secs(1), Duration::from_secs(300), self.patience) {
            return range("patience", format!("{:?}", self.patience), "from 1 s to 300 s");
        }
        if !from_to(Duration::ZERO, Duration::from_secs(1), self.linger) {
            return range("linger", format!("{:?}", self.linger), "from 0 to 1 s");
        }
        if !(64 * 1024..=1 << 30).contains(&self.queue_bytes) {
            return range("queue_bytes", self.queue_bytes.to_string(), "from 64 KiB to 1 GiB");
        }
        Ok(())
    }

    /// The client properties. `alone`: each message in a separate request.
    pub(crate) fn client(&self, alone: bool) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("partitioner", "murmur2_random"); // as the JVM's clients
        client.set("reconnect.backoff.ms", "50");
        client.set("reconnect.backoff.max.ms", "1000");
        self.properties.iter().for_each(|(name, value)| {
            client.set(name, value);
        });
        client.set("bootstrap.servers", &self.brokers);
        client.set("client.id", &self.client_id);
        client.set("enable.idempotence", "true");
        client.set("acks", "all");
        // No message times out by itself, because the later messages of its key would go on without it.
        client.set("message.timeout.ms", "0");
        let propagation = self.patience.as_millis() / 2;
        client.set("topic.metadata.propagation.max.ms", propagation.to_string());
        // The sink's own limit is reached first. Each message counts at least one KiB there. The client
        // counts a message until it has passed on all answers of the same response, and the sink sends more
        // meanwhile.
        let kib = self.queue_bytes / 1024;
        client.set("queue.buffering.max.messages", (2 * kib).to_string());
        client.set("queue.buffering.max.kbytes", (2 * kib).to_string());
        if alone {
            client.set("batch.num.messages", "1");
            client.set("linger.ms", "0");
        } else {
            // After a refused message, this producer sends nothing more.
            client.set("enable.gapless.guarantee", "true");
            client.set("linger.ms", (self.linger.as_secs_f64() * 1000.0).to_string());
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_promise_cannot_be_set() {
        for name in OWN {
            let refused = KafkaConfig::new("h:1").property(*name, "1").check();
            assert!(matches!(refused, Err(ConfigError::Own { .. })), "{name}");
        }
        assert!(KafkaConfig::new("h:1").property("security.protocol", "ssl").check().is_ok());
    }

    #[test]
    fn ranges_are_checked() {
        let short = KafkaConfig::new("h:1").patience(Duration::from_millis(5)).check();
        assert_eq!(short.unwrap_err().to_string(), "patience is 5ms, but must be from 1 s to 300 s");
        assert!(KafkaConfig::new("h:1").queue_bytes(1).check().is_err());
    }

    #[test]
    fn values_of_properties_stay_out_of_the_debug_form() {
        let config = KafkaConfig::new("h:1").property("sasl.password", "hunter2");
        let shown = format!("{config:?}");
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }
}
