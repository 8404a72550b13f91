//! Routes as plain data, as a configuration file has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    form::Form,
    route::Route,
    template::{Template, TemplateError},
};

/// A [`Route`] as plain data. Unknown fields are refused. All texts but `events` and `form` are
/// [templates](Template).
///
/// ```
/// use keylane_message::{Route, RouteConfig};
///
/// let config: RouteConfig = toml::from_str(
///     r#"
///     events = ["order.*", "refund.paid"]
///     to = "orders"
///     key = "{header.tenant}/{key}"
///     headers = { tenant = "{header.tenant}", team = "sales" }
///     form = "cloud-events-json"
///     dead_letters = "orders.dead"
///     "#,
/// )?;
/// assert!(config.route()?.takes("order.placed"));
/// let unknown = toml::from_str::<RouteConfig>("to = 'orders'\ntopic = 'orders'").unwrap_err();
/// assert!(unknown.to_string().contains("unknown field `topic`, expected one of `events`, `to`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RouteConfig {
    /// The record types of the route, with `*` for any text. None: all types.
    #[serde(default)]
    pub events: Vec<String>,
    /// The target: a topic, or the URL of an endpoint.
    pub to: String,
    /// The key of the messages. Default: the record key. Records of one key must get one key, or their order ends.
    #[serde(default)]
    pub key: Option<String>,
    /// Headers of every message.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The form of the messages: `cloud-events` (the default), `cloud-events-json`, `base-event`, `debezium` or
    /// `plain`.
    #[serde(default)]
    pub form: Form,
    /// The target of records that fail for good. Default: none; such a record stays in the table as failed.
    #[serde(default)]
    pub dead_letters: Option<String>,
    /// Whether a record that fails for good goes to the table `outbox_dead_letter`. Not with `dead_letters`.
    #[serde(default)]
    pub dead_letter_table: bool,
}

/// What is wrong with a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("route to {to:?}: {field}: {problem}")]
#[non_exhaustive]
pub struct RouteError {
    /// Where the route goes to.
    pub to: String,
    /// The field, such as `key` or `headers.tenant`.
    pub field: String,
    /// What is wrong with it.
    pub problem: RouteProblem,
}

/// What is wrong with a field of a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteProblem {
    /// The text is no template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Dead letters have two places.
    #[error("dead letters go to a target or to the table: take out dead_letters or dead_letter_table")]
    TwoPlaces,
}

impl RouteConfig {
    /// A route to this target with the defaults.
    pub fn new(to: impl Into<String>) -> Self {
        Self {
            events: Vec::new(),
            to: to.into(),
            key: None,
            headers: BTreeMap::new(),
            form: Form::default(),
            dead_letters: None,
            dead_letter_table: false,
        }
    }

    /// The route.
    ///
    /// # Errors
    /// A text is no template, or dead letters have two places.
    pub fn route(&self) -> Result<Route, RouteError> {
        let error =
            |field: &str, problem| RouteError { to: self.to.clone(), field: field.to_owned(), problem };
        let template =
            |field: &str, text: &str| Template::parse(text).map_err(|problem| error(field, problem.into()));
        let mut route = Route::to_template(template("to", &self.to)?).form(self.form);
        // No pattern at all would take no type.
        if !self.events.is_empty() {
            route = route.events(self.events.iter().cloned());
        }
        if let Some(key) = &self.key {
            route = route.key_template(template("key", key)?);
        }
        for (name, value) in &self.headers {
            route = route.header_template(name, template(&format!("headers.{name}"), value)?);
        }
        if let Some(target) = &self.dead_letters {
            route = route.dead_letters_template(template("dead_letters", target)?);
        }
        if self.dead_letter_table {
            if self.dead_letters.is_some() {
                return Err(error("dead_letter_table", RouteProblem::TwoPlaces));
            }
            route = route.dead_letter_table();
        }
        Ok(route)
    }
}

impl TryFrom<RouteConfig> for Route {
    type Error = RouteError;

    fn try_from(config: RouteConfig) -> Result<Self, RouteError> {
        config.route()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_events_takes_all_types() {
        let mut config = RouteConfig::new("orders");
        let takes = |config: &RouteConfig| config.route().unwrap().takes("order.placed");
        assert!(takes(&config));
        config.events.push("refund.*".to_owned());
        assert!(!takes(&config));
    }

    #[test]
    fn a_mistake_names_its_route_and_field() {
        let mut config = RouteConfig::new("orders");
        config.headers.insert("tenant".to_owned(), "{tenant}".to_owned());
        let error = config.route().unwrap_err().to_string();
        assert!(
            error.starts_with("route to \"orders\": headers.tenant: template \"{tenant}\" names"),
            "{error}"
        );
    }
}
