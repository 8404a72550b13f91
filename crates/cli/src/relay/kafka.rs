//! The table `[relay.kafka]`: the settings of `KafkaConfig`, under their names.

use std::{collections::BTreeMap, time::Duration};

use keylane_kafka::{KafkaConfig, KafkaSink};
use keylane_message::Route;
use serde::Deserialize;

use super::{
    config::{Hidden, Unrouted},
    setting::{duration, with},
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KafkaTable {
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

impl KafkaTable {
    pub(crate) fn config(&self) -> KafkaConfig {
        let set = self.clone();
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

    /// The sink of these routes.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(super) fn sink(&self, routes: Vec<Route>, unrouted: Unrouted) -> Result<KafkaSink, String> {
        let sink = KafkaSink::new(self.config()).map_err(|error| format!("relay.kafka: {error}"))?;
        let sink = routes.into_iter().fold(sink, KafkaSink::route);
        Ok(if unrouted == Unrouted::Skip { sink.skip_unrouted() } else { sink })
    }
}
