//! The state of topics, for a check before a service starts.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ConfigEntry, ResourceSpecifier},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};

use crate::config::KafkaConfig;

/// A topic as the brokers describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicState {
    /// The name of the topic.
    pub name: String,
    /// The number of partitions. Or the reason why the topic cannot be written to: it is unknown, or the user
    /// may not see it.
    pub partitions: Result<usize, Code>,
    /// The largest batch of the topic, in bytes (`max.message.bytes`). `None` if the brokers do not say.
    pub max_message_bytes: Option<u64>,
}

/// The brokers could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the brokers at {brokers} cannot be asked: {code}")]
#[non_exhaustive]
pub struct ProbeError {
    /// The addresses that were tried.
    pub brokers: String,
    /// The text of the client.
    pub code: Code,
}

impl KafkaConfig {
    /// Asks the brokers about these topics, and creates none of them. Returns the topics in the given order.
    ///
    /// # Errors
    /// [`ProbeError`] if no broker answers within this time, or if the brokers refuse the client.
    pub async fn topics(&self, names: &[String], within: Duration) -> Result<Vec<TopicState>, ProbeError> {
        let config = self.client(true);
        let (asked, reader) = (names.to_vec(), config.clone());
        let counted = tokio::task::spawn_blocking(move || partitions(&reader, &asked, within)).await;
        let code = |error: KafkaError| error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let counted = counted.map_or(Err(Code::Fail), |counted| counted.map_err(code));
        let counted = counted.map_err(|code| ProbeError { brokers: self.brokers.clone(), code })?;
        let known = names.iter().zip(&counted).filter(|(_, partitions)| partitions.is_ok());
        let mut limits = limits(&config, known.map(|(name, _)| name.as_str()), within).await.into_iter();
        let state = |(name, partitions): (&String, Result<usize, Code>)| TopicState {
            max_message_bytes: partitions.is_ok().then(|| limits.next()).flatten().flatten(),
            name: name.clone(),
            partitions,
        };
        Ok(names.iter().zip(counted).map(state).collect())
    }
}

/// Asks as a consumer. A producer that asks for a topic creates it if the brokers allow that.
fn partitions(
    config: &ClientConfig,
    names: &[String],
    within: Duration,
) -> Result<Vec<Result<usize, Code>>, KafkaError> {
    let mut config = config.clone();
    config.set("allow.auto.create.topics", "false").set("group.id", "keylane-check");
    let reader: BaseConsumer = config.create()?;
    // Without a topic to ask about, the brokers must at least identify themselves.
    if names.is_empty() && reader.client().fetch_cluster_id(within).is_none() {
        return Err(KafkaError::MetadataFetch(Code::BrokerTransportFailure));
    }
    let mut found = Vec::new();
    for name in names {
        let metadata = reader.fetch_metadata(Some(name), within)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == name);
        found.push(match topic.map(|topic| (topic.error(), topic.partitions().len())) {
            Some((None, partitions)) if partitions > 0 => Ok(partitions),
            Some((Some(error), _)) => Err(error.into()),
            _ => Err(Code::UnknownTopicOrPartition),
        });
    }
    Ok(found)
}

/// The settings, in the order of the names. A sink does not need the right to read settings. Without that
/// right they are `None`.
async fn limits(
    config: &ClientConfig,
    names: impl Iterator<Item = &str>,
    within: Duration,
) -> Vec<Option<u64>> {
    let topics: Vec<ResourceSpecifier<'_>> = names.map(ResourceSpecifier::Topic).collect();
    let Ok(admin) = config.create::<AdminClient<DefaultClientContext>>() else { return Vec::new() };
    let options = AdminOptions::new().request_timeout(Some(within));
    let Ok(described) = admin.describe_configs(&topics, &options).await else { return Vec::new() };
    let limit = |entry: &ConfigEntry| entry.value.as_ref()?.parse().ok();
    let of_topic =
        |resource: &rdkafka::admin::ConfigResource| resource.get("max.message.bytes").and_then(limit);
    described.iter().map(|resource| resource.as_ref().ok().and_then(of_topic)).collect()
}
