//! The table `[relay]` of the file.

use std::net::SocketAddr;

use keylane::Registration;
use keylane_message::{Route, RouteConfig};
use serde::{Deserialize, Deserializer, de::Error};

use super::{kafka::KafkaTable, webhook::WebhookTable};

/// The routes of a relay, and its health endpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayConfig {
    /// The id under which producers find the routes to topics in `outbox_handler`.
    #[serde(default = "handler")]
    handler: String,
    database_url: Option<Hidden>,
    /// The address on which `/health` answers; there is none by default.
    pub(crate) health: Option<SocketAddr>,
    #[serde(default)]
    pub(crate) log: LogForm,
    /// What happens to records that no route takes.
    #[serde(default)]
    unrouted: Unrouted,
    pub(crate) kafka: Option<KafkaTable>,
    #[serde(default)]
    pub(crate) webhook: WebhookTable,
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
pub(crate) enum Unrouted {
    #[default]
    Fail,
    Skip,
}

/// A text that can be a secret. Its debug form does not contain it, and neither does the refusal of a value that is
/// no text.
#[derive(Clone)]
pub(crate) struct Hidden(pub(crate) String);

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::String(text) => Ok(Self(text)),
            other => Err(D::Error::custom(format!(
                "the value is of the type {}, but must be a text: put it in quotes",
                other.type_str()
            ))),
        }
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// The routes of each kind of target, compiled.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) topics: Vec<Route>,
    pub(crate) endpoints: Vec<Route>,
}

impl RelayConfig {
    pub(crate) fn database_url(&self) -> Option<&str> {
        self.database_url.as_ref().map(|url| url.0.as_str())
    }

    /// Compiles the routes.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(crate) fn routes(&self) -> Result<Routes, String> {
        if self.route.is_empty() {
            return Err(
                "relay.route: there is no route: add a table [[relay.route]] with a key `to`".to_owned()
            );
        }
        let mut routes = Routes::default();
        for (at, config) in self.route.iter().enumerate() {
            let route = compiled(config).map_err(|problem| format!("relay.route {}: {problem}", at + 1))?;
            if is_url(config) { routes.endpoints.push(route) } else { routes.topics.push(route) }
        }
        Ok(routes)
    }

    /// The topics, including those of dead letters, whose names depend on the record.
    pub(crate) fn open_topics(&self) -> impl Iterator<Item = &str> {
        let of_topics = self.route.iter().filter(|config| !is_url(config));
        let names = of_topics.flat_map(|config| [Some(config.to.as_str()), config.dead_letters.as_deref()]);
        // A doubled brace is a brace.
        names.flatten().filter(|name| name.replace("{{", "").contains('{'))
    }

    /// A handler for each kind of target that has routes.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(crate) fn registrations(&self) -> Result<Vec<Registration>, String> {
        let Routes { topics, endpoints } = self.routes()?;
        let [to_topics, to_endpoints] = self.handlers();
        let mut registrations = Vec::new();
        if !topics.is_empty() {
            let kafka = self.kafka.as_ref();
            let kafka =
                kafka.ok_or("a route names a topic, but there is no table [relay.kafka] with `brokers`")?;
            registrations.push(kafka.sink(topics, self.unrouted)?.registration(to_topics));
        }
        if !endpoints.is_empty() {
            registrations.push(self.webhook.sink(endpoints, self.unrouted)?.registration(to_endpoints));
        }
        Ok(registrations)
    }

    /// The ids of the handlers of topics and of endpoints, even if they have no routes.
    pub(crate) fn handlers(&self) -> [String; 2] {
        [self.handler.clone(), format!("{}-webhook", self.handler)]
    }
}

fn is_url(config: &RouteConfig) -> bool {
    ["https://", "http://"].iter().any(|scheme| config.to.starts_with(scheme))
}

fn compiled(config: &RouteConfig) -> Result<Route, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/*".contains(c);
    let bad = |event: &&String| event.is_empty() || event.len() > 128 || !event.chars().all(plain);
    if let Some(event) = config.events.iter().find(bad) {
        return Err(format!(
            "the pattern {event:?} is not valid: it needs 1 to 128 letters, digits, . _ - : / and * for any text"
        ));
    }
    if config.to.is_empty() {
        return Err("to is empty: name a topic, or the URL of an endpoint".to_owned());
    }
    config.route().map_err(|error| error.to_string())
}

fn handler() -> String {
    "relay".to_owned()
}
