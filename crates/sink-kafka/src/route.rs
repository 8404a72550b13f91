//! Routes: which records go where, and as what. Pure functions of the record.

use std::fmt;

use keylane::Record;

use crate::message::{self, Message};

type Text = Box<dyn Fn(&Record) -> String + Send + Sync>;

/// What becomes of the records of some types: a pure function from a record to a message.
///
/// ```
/// use keylane_kafka::Route;
///
/// let route = Route::to("orders")
///     .events(["order.*", "refund.paid"])
///     .header("team", "sales")
///     .header_by("tenant", |record| record.delivery.headers.get("tenant").cloned().unwrap_or_default());
/// assert!(route.takes("order.placed") && !route.takes("refund.asked"));
/// ```
#[must_use = "give it to KafkaSink::route"]
pub struct Route {
    patterns: Vec<String>,
    topic: Text,
    key: Option<Text>,
    headers: Vec<(String, Text)>,
    plain: bool,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Route").field("events", &self.patterns).field("headers", &headers).finish()
    }
}

impl Route {
    /// Records go to this topic: those of all types, until [`Route::events`] says which.
    pub fn to(topic: impl Into<String>) -> Self {
        let topic = topic.into();
        Self::to_by(move |_| topic.clone())
    }

    /// As [`Route::to`], with a topic for each record.
    pub fn to_by(topic: impl Fn(&Record) -> String + Send + Sync + 'static) -> Self {
        Self { patterns: Vec::new(), topic: Box::new(topic), key: None, headers: Vec::new(), plain: false }
    }

    /// The record types that go this way. A `*` stands for any text.
    pub fn events<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.patterns.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// The key of the message. Default: the record key, which keeps the order: records of one key must get one key.
    pub fn key(mut self, key: impl Fn(&Record) -> String + Send + Sync + 'static) -> Self {
        self.key = Some(Box::new(key));
        self
    }

    /// A header of every message. It wins over a record's header of the same name.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        self.header_by(name, move |_| value.clone())
    }

    /// As [`Route::header`], with a value for each record.
    pub fn header_by(
        mut self,
        name: impl Into<String>,
        value: impl Fn(&Record) -> String + Send + Sync + 'static,
    ) -> Self {
        self.headers.push((name.into(), Box::new(value)));
        self
    }

    /// Leaves out the headers of CloudEvents.
    pub fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Whether records of this type go this way.
    pub fn takes(&self, record_type: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| matches(pattern, record_type))
    }

    /// The message of a record. `source` is that of its CloudEvent.
    pub fn message(&self, record: &Record, source: &str) -> Message {
        let mut headers = if self.plain { Vec::new() } else { message::cloud_events(record, source) };
        for (name, value) in &self.headers {
            message::add(&mut headers, name, &value(record));
        }
        for (name, value) in &record.delivery.headers {
            message::add(&mut headers, name, value);
        }
        let key = self.key.as_ref().map_or_else(|| record.delivery.key.to_string(), |key| key(record));
        Message { topic: (self.topic)(record), key, headers }
    }

    /// The record types, if no pattern stands for more than one.
    pub(crate) fn exact(&self) -> Option<&[String]> {
        let exact = !self.patterns.is_empty() && !self.patterns.iter().any(|pattern| pattern.contains('*'));
        exact.then_some(&self.patterns)
    }
}

/// Whether the text is of this pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table = [
            ("order.placed", "order.placed", true),
            ("order.placed", "order.placed.eu", false),
            ("order.*", "order.placed", true),
            ("order.*", "order.", true),
            ("order.*", "orders", false),
            ("*", "", true),
            ("*.placed", "order.placed", true),
            ("*.placed", "order.paid", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("é*", "été", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_route_without_patterns_takes_all_types() {
        assert!(Route::to("t").takes("any"));
        assert!(Route::to("t").exact().is_none());
        assert_eq!(Route::to("t").events(["a"]).exact().map(<[_]>::len), Some(1));
        assert!(Route::to("t").events(["a", "b*"]).exact().is_none());
    }
}
