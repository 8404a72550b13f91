//! The table `[relay.webhook]`: the settings of `WebhookConfig`. Settings that may be given several times are lists.

use std::{collections::BTreeMap, time::Duration};

use keylane_message::Route;
use keylane_webhook::{Network, Secret, WebhookConfig, WebhookSink};
use serde::Deserialize;

use super::{
    config::{Hidden, Unrouted},
    setting::{duration, with},
};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebhookTable {
    source: Option<String>,
    secrets: Vec<Hidden>,
    unsigned: bool,
    headers: BTreeMap<String, Hidden>,
    #[serde(deserialize_with = "duration")]
    timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    connect_timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    retry_after: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    max_retry_after: Option<Duration>,
    concurrency: Option<usize>,
    allow_http: bool,
    allow_networks: Vec<String>,
}

impl WebhookTable {
    /// The sink of these routes.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(super) fn sink(&self, routes: Vec<Route>, unrouted: Unrouted) -> Result<WebhookSink, String> {
        if self.secrets.is_empty() && !self.unsigned {
            return Err("relay.webhook.secrets is empty: give secrets, or set unsigned = true".to_owned());
        }
        let sink = WebhookSink::new(self.config()?).map_err(|error| format!("relay.webhook: {error}"))?;
        let sink = routes.into_iter().fold(sink, WebhookSink::route);
        Ok(if unrouted == Unrouted::Skip { sink.skip_unrouted() } else { sink })
    }

    /// The settings of the sink.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(super) fn config(&self) -> Result<WebhookConfig, String> {
        let set = self.clone();
        let mut config = WebhookConfig::new();
        config = with(config, set.source, WebhookConfig::source);
        config = with(config, set.timeout, WebhookConfig::timeout);
        config = with(config, set.connect_timeout, WebhookConfig::connect_timeout);
        config = with(config, set.retry_after, WebhookConfig::retry_after);
        config = with(config, set.max_retry_after, WebhookConfig::max_retry_after);
        config = with(config, set.concurrency, WebhookConfig::concurrency);
        config = with(config, set.unsigned.then_some(()), |config, ()| config.unsigned());
        config = with(config, set.allow_http.then_some(()), |config, ()| config.allow_http());
        for secret in &set.secrets {
            let secret =
                Secret::parse(&secret.0).map_err(|error| format!("relay.webhook.secrets: {error}"))?;
            config = config.secret(secret);
        }
        for network in &set.allow_networks {
            let network: Network =
                network.parse().map_err(|error| format!("relay.webhook.allow_networks: {error}"))?;
            config = config.allow_network(network);
        }
        Ok(set.headers.into_iter().fold(config, |config, (name, value)| config.header(name, value.0)))
    }
}
