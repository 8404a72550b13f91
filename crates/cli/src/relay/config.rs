//! The table `[relay]` of the file.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use keylane_kafka::{KafkaConfig, KafkaSink, Route, RouteConfig};
use serde::{Deserialize, Deserializer, de::Error};

/// What is relayed, where to, and how the process shows itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayConfig {
    /// The id under which producers find the relay in `outbox_handler`.
    #[serde(default = "handler")]
    pub(crate) handler: String,
    database_url: Option<Hidden>,
    /// Where `/health` answers; nowhere if it is not given.
    pub(crate) health: Option<SocketAddr>,
    #[serde(default)]
    pub(crate) log: LogForm,
    /// What becomes of records that no route takes.
    #[serde(default)]
    unrouted: Unrouted,
    kafka: Kafka,
    #[serde(default)]
    pub(crate) route: Vec<RouteConfig>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogForm {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unrouted {
    #[default]
    Fail,
    Skip,
}

/// A text that can be a secret: its debug form has nothing of it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Hidden(String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// The settings of `KafkaConfig`, under their names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kafka {
    brokers: String,
    client_id: Option<String>,
    source: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    linger: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    patience: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    retry_after: Option<Duration>,
    queue_bytes: Option<usize>,
    batch_size: Option<usize>,
    concurrency: Option<usize>,
    #[serde(default)]
    properties: BTreeMap<String, Hidden>,
}

impl RelayConfig {
    pub(crate) fn database_url(&self) -> Option<&str> {
        self.database_url.as_ref().map(|url| url.0.as_str())
    }

    pub(crate) fn kafka(&self) -> KafkaConfig {
        let set = self.kafka.clone();
        let mut config = KafkaConfig::new(set.brokers);
        config = with(config, set.client_id, KafkaConfig::client_id);
        config = with(config, set.source, KafkaConfig::source);
        config = with(config, set.linger, KafkaConfig::linger);
        config = with(config, set.patience, KafkaConfig::patience);
        config = with(config, set.retry_after, KafkaConfig::retry_after);
        config = with(config, set.queue_bytes, KafkaConfig::queue_bytes);
        config = with(config, set.batch_size, KafkaConfig::batch_size);
        config = with(config, set.concurrency, KafkaConfig::concurrency);
        let properties = set.properties.into_iter();
        properties.fold(config, |config, (name, value)| config.property(name, value.0))
    }

    /// The routes, compiled.
    ///
    /// # Errors
    /// The sentence for what is wrong.
    pub(crate) fn routes(&self) -> Result<Vec<Route>, String> {
        if self.route.is_empty() {
            return Err(
                "relay.route: there is no route: add a table [[relay.route]] with a key `to`".to_owned()
            );
        }
        self.route.iter().enumerate().map(|(at, route)| compiled(at + 1, route)).collect()
    }

    /// The sink with all routes.
    ///
    /// # Errors
    /// The sentence for what is wrong.
    pub(crate) fn sink(&self) -> Result<KafkaSink, String> {
        let routes = self.routes()?;
        let sink = KafkaSink::new(self.kafka()).map_err(|error| format!("relay.kafka: {error}"))?;
        let sink = routes.into_iter().fold(sink, KafkaSink::route);
        Ok(if self.unrouted == Unrouted::Skip { sink.skip_unrouted() } else { sink })
    }
}

/// With a setting, if the file has it.
fn with<T>(
    config: KafkaConfig,
    value: Option<T>,
    setter: impl FnOnce(KafkaConfig, T) -> KafkaConfig,
) -> KafkaConfig {
    match value {
        Some(value) => setter(config, value),
        None => config,
    }
}

/// One route of the file, by its number.
fn compiled(number: usize, route: &RouteConfig) -> Result<Route, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/*".contains(c);
    let bad = |event: &&String| event.is_empty() || event.len() > 128 || !event.chars().all(plain);
    if let Some(event) = route.events.iter().find(bad) {
        return Err(format!(
            "relay.route {number}: the pattern {event:?} is not valid: it needs 1 to 128 letters, digits, \
             . _ - : / and * for any text"
        ));
    }
    if route.to.is_empty() {
        return Err(format!("relay.route {number}: to is empty: name a topic"));
    }
    route.route().map_err(|error| format!("relay.route {number}: {error}"))
}

fn handler() -> String {
    "relay".to_owned()
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let read = humantime::parse_duration(&text);
    read.map(Some)
        .map_err(|_| D::Error::custom(format!("{text:?} is no duration: write it as in \"2s\" or \"500ms\"")))
}
