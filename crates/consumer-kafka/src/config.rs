//! The settings of a consumer, and the client properties that follow from them.

use std::{collections::BTreeMap, fmt, time::Duration};

use keylane::RetryPolicy;
use rdkafka::ClientConfig;

/// The properties that the consumer's guarantees rest on.
const OWN: &[&str] = &[
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "group.id",
    "enable.auto.commit",
    "auto.commit.enable",
    "enable.auto.offset.store",
    "auto.commit.interval.ms",
    "enable.partition.eof",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "statistics.interval.ms",
    "group.protocol",
];

/// The settings of a consumer. `docs/consuming.md` lists all of them.
#[derive(Clone)]
#[must_use = "give it to Consumer::builder"]
pub struct ConsumerConfig {
    pub(crate) brokers: String,
    pub(crate) group: String,
    pub(crate) client_id: String,
    pub(crate) from_start: bool,
    pub(crate) concurrency: usize,
    pub(crate) batch_size: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) max_ahead: usize,
    pub(crate) handler_timeout: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) retry: RetryPolicy,
    properties: BTreeMap<String, String>,
}

/// A setting that is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A guarantee of the consumer rests on the property.
    #[error("the property {name} is the consumer's own: it carries what the consumer promises")]
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
    /// The retry policy is not valid.
    #[error("{0}")]
    Retry(String),
    /// A handler is declared for another group.
    #[error("the handler of {topic} is for the group {declared}, but the consumer is in the group {group}")]
    Group {
        /// The topic of the handler.
        topic: &'static str,
        /// The group of the handler.
        declared: &'static str,
        /// The group of the consumer.
        group: String,
    },
    /// There is no topic, or a topic has two handlers.
    #[error("the consumer has {0}: give each topic one handler")]
    Topics(String),
    /// The client refuses the properties. The text names the property, but not its value, which can be a
    /// secret.
    #[error("the kafka client refuses its properties: {0}")]
    Client(String),
    /// The thread of the client could not be started.
    #[error("the thread of the kafka client could not be started: {0}")]
    Thread(std::io::Error),
}

/// The debug form shows only the names of properties, because a value can be a secret.
impl fmt::Debug for ConsumerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerConfig")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("client_id", &self.client_id)
            .field("concurrency", &self.concurrency)
            .field("batch_size", &self.batch_size)
            .field("queue_bytes", &self.queue_bytes)
            .field("max_ahead", &self.max_ahead)
            .field("handler_timeout", &self.handler_timeout)
            .field("drain_timeout", &self.drain_timeout)
            .field("shutdown_timeout", &self.shutdown_timeout)
            .field("retry", &self.retry)
            .field("properties", &self.properties.keys())
            .finish_non_exhaustive()
    }
}

impl ConsumerConfig {
    /// Creates the settings: the first brokers to ask, as `host:port,host:port`, and the consumer group.
    pub fn new(brokers: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            group: group.into(),
            client_id: "keylane".to_owned(),
            from_start: true,
            concurrency: 32,
            batch_size: 1,
            queue_bytes: 32 * 1024 * 1024,
            max_ahead: 5000,
            handler_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(15),
            retry: RetryPolicy::exponential(),
            properties: BTreeMap::new(),
        }
    }

    /// Sets the name of the client in the broker's logs and quotas. Default `keylane`.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Sets whether a group that has committed nothing yet begins with the oldest message. Default true.
    pub fn from_start(mut self, from_start: bool) -> Self {
        self.from_start = from_start;
        self
    }

    /// Sets the most calls of handlers at once. Default 32. One of several topics has at most three quarters of them.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Sets the most messages that share a transaction of a transactional handler. Default 1. If one of them
    /// fails, all are handled again, one by one.
    pub fn batch_size(mut self, messages: usize) -> Self {
        self.batch_size = messages;
        self
    }

    /// Sets the most bytes of messages in memory. Default 32 MiB. At the limit, the consumer asks Kafka for
    /// no more. The client's own queue needs as much again.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Sets the most messages of a partition behind an unfinished one. Default 5,000. At the limit, the
    /// partition waits.
    pub fn max_ahead(mut self, messages: usize) -> Self {
        self.max_ahead = messages;
        self
    }

    /// Sets the time limit of a handler. Default 30 s.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = limit;
        self
    }

    /// Sets the time limit of calls under way when their partition goes to another consumer. Default 10 s.
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.drain_timeout = limit;
        self
    }

    /// Sets the time limit of calls under way at a shutdown. Default 15 s.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = limit;
        self
    }

    /// Sets when and how often a message is tried again. Default: 3 retries, exponential from 2 s.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets a property of librdkafka, such as `security.protocol`. Properties that the consumer's guarantees
    /// rest on are refused.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = self.properties.keys().find(|name| OWN.contains(&name.as_str())) {
            return Err(ConfigError::Own { name: name.clone() });
        }
        let range = |name, value: String, range| Err(ConfigError::Range { name, value, range });
        if self.group.is_empty() || self.group.len() > 100 {
            return range("group", format!("{} bytes long", self.group.len()), "1 to 100 bytes long");
        }
        if !(1..=10_000).contains(&self.concurrency) {
            return range("concurrency", self.concurrency.to_string(), "from 1 to 10000");
        }
        if !(1..=1000).contains(&self.batch_size) {
            return range("batch_size", self.batch_size.to_string(), "from 1 to 1000");
        }
        if !(64 * 1024..=1 << 30).contains(&self.queue_bytes) {
            return range("queue_bytes", self.queue_bytes.to_string(), "from 64 KiB to 1 GiB");
        }
        if !(1..=1_000_000).contains(&self.max_ahead) {
            return range("max_ahead", self.max_ahead.to_string(), "from 1 to 1000000");
        }
        // This is shorter than the time that librdkafka permits between two polls.
        let limits = [
            ("handler_timeout", self.handler_timeout, Duration::from_millis(1), "from 1 ms to 1 day", 86_400),
            ("drain_timeout", self.drain_timeout, Duration::ZERO, "from 0 to 120 s", 120),
            ("shutdown_timeout", self.shutdown_timeout, Duration::ZERO, "from 0 to 1 h", 3600),
        ];
        for (name, value, least, text, most) in limits {
            if value < least || value > Duration::from_secs(most) {
                return range(name, format!("{value:?}"), text);
            }
        }
        self.retry
            .problems("retry")
            .into_iter()
            .next()
            .map_or(Ok(()), |problem| Err(ConfigError::Retry(problem)))
    }

    /// The properties that consumer and producer share.
    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("reconnect.backoff.ms", "50");
        client.set("reconnect.backoff.max.ms", "1000");
        client
    }

    fn with_properties(&self, mut client: ClientConfig) -> ClientConfig {
        self.properties.iter().for_each(|(name, value)| {
            client.set(name, value);
        });
        client.set("bootstrap.servers", &self.brokers);
        client.set("client.id", &self.client_id);
        client
    }

    pub(crate) fn consumer(&self) -> ClientConfig {
        let mut client = self.client();
        client.set("auto.offset.reset", if self.from_start { "earliest" } else { "latest" });
        let mut client = self.with_properties(client);
        client.set("group.id", &self.group);
        // A thread commits the stored offsets. An offset is stored when all messages before it are finished.
        client.set("enable.auto.commit", "false");
        client.set("enable.auto.offset.store", "false");
        client.set("partition.assignment.strategy", "cooperative-sticky");
        client.set("queued.max.messages.kbytes", (self.queue_bytes / 1024).to_string());
        client.set("statistics.interval.ms", "5000");
        client
    }

    pub(crate) fn producer(&self) -> ClientConfig {
        let mut client = self.client();
        client.set("partitioner", "murmur2_random"); // as the JVM's clients
        for (name, value) in &self.properties {
            // All other properties concern the consumer alone.
            if ["security.", "sasl.", "ssl.", "socket.", "message.max"]
                .iter()
                .any(|start| name.starts_with(start))
            {
                client.set(name, value);
            }
        }
        client.set("bootstrap.servers", &self.brokers);
        client.set("client.id", &self.client_id);
        client.set("enable.idempotence", "true");
        client.set("acks", "all");
        client.set("linger.ms", "0");
        client.set("message.timeout.ms", "10000");
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_promise_cannot_be_set() {
        for name in OWN {
            let refused = ConsumerConfig::new("h:1", "g").property(*name, "1").check();
            assert!(matches!(refused, Err(ConfigError::Own { .. })), "{name}");
        }
        assert!(ConsumerConfig::new("h:1", "g").property("security.protocol", "ssl").check().is_ok());
    }

    #[test]
    fn ranges_are_checked_and_secrets_are_not_shown() {
        let config = ConsumerConfig::new("h:1", "g").property("sasl.password", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        let error = config.clone().concurrency(0).check().unwrap_err();
        assert_eq!(error.to_string(), "concurrency is 0, but must be from 1 to 10000");
        assert!(config.clone().queue_bytes(1).check().is_err());
        assert!(config.clone().handler_timeout(Duration::ZERO).check().is_err());
        assert!(config.retry(RetryPolicy::exponential().jitter(7.0)).check().is_err());
    }
}
