//! Routes: the target and the form of each record's message. Pure functions of the record.

use std::{borrow::Cow, fmt};

use keylane::{Failure, Record, RecordTypes};

use crate::{
    cause::Cause,
    event::Event,
    form::{Binding, Form},
    template::Template,
    write::{self, MessageHeaders},
};

/// A message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The target: a topic, a queue, the URL of an endpoint.
    pub target: Cow<'a, str>,
    /// The key, which orders messages at the target. It chooses the partition in Kafka.
    pub key: Cow<'a, str>,
    /// The headers, in order.
    pub headers: MessageHeaders<'a>,
    /// The body. In most forms it is the payload of the record, as stored.
    pub body: Cow<'a, [u8]>,
}

/// The route of some record types: a pure function from a record to a message.
///
/// ```
/// use keylane_message::{Form, Route};
///
/// let route = Route::to("orders")
///     .events(["order.*", "refund.paid"])
///     .header("team", "sales")
///     .header_by("tenant", |record| record.delivery.headers.get("tenant").cloned().unwrap_or_default())
///     .form(Form::CloudEventsJson)
///     .dead_letters("orders.dead");
/// assert!(route.takes("order.placed") && !route.takes("refund.asked"));
/// ```
#[must_use = "give it to the sink"]
pub struct Route {
    record_types: RecordTypes,
    target: Text,
    key: Option<Text>,
    headers: Vec<(String, Text)>,
    form: Form,
    dead_letters: Option<DeadLetters>,
}

/// The target of dead letters.
#[derive(Debug)]
enum DeadLetters {
    Target(Text),
    Table,
}

enum Text {
    Template(Template),
    By(Box<dyn Fn(&Record) -> String + Send + Sync>),
}

impl Text {
    fn of<'a>(&'a self, record: &Record, event: &Event<'a>) -> Cow<'a, str> {
        match self {
            Self::Template(template) => template.text(event),
            Self::By(text) => text(record).into(),
        }
    }

    fn fixed(&self) -> Option<&str> {
        match self {
            Self::Template(template) => template.fixed(),
            Self::By(_) => None,
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(template) => template.fmt(f),
            Self::By(_) => f.write_str("(a function)"),
        }
    }
}

/// The debug form shows only the names of headers, because a value can be a secret.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Route")
            .field("events", &self.record_types.patterns())
            .field("target", &self.target)
            .field("key", &self.key)
            .field("headers", &headers)
            .field("form", &self.form)
            .field("dead_letters", &self.dead_letters)
            .finish()
    }
}

impl Route {
    /// A route to this target, for records of all types unless [`Route::events`] names some.
    pub fn to(target: impl Into<String>) -> Self {
        Self::new(Text::Template(Template::of_text(target.into())))
    }

    /// Like [`Route::to`], with a target for each record.
    pub fn to_by(target: impl Fn(&Record) -> String + Send + Sync + 'static) -> Self {
        Self::new(Text::By(Box::new(target)))
    }

    /// Like [`Route::to`], with a target for each record, by a template.
    pub fn to_template(target: Template) -> Self {
        Self::new(Text::Template(target))
    }

    fn new(target: Text) -> Self {
        Self {
            record_types: RecordTypes::all(),
            target,
            key: None,
            headers: Vec::new(),
            form: Form::default(),
            dead_letters: None,
        }
    }

    /// Sets the record types of the route. A `*` matches any text.
    pub fn events<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        let before = self.record_types.patterns().map(<[String]>::to_vec);
        let types = RecordTypes::types(patterns);
        self.record_types = before.map_or(types.clone(), |before| RecordTypes::types(before).or(types));
        self
    }

    /// Sets the key of the message. The default is the record key, which keeps the order. All records of one
    /// record key must get the same key.
    pub fn key(mut self, key: impl Fn(&Record) -> String + Send + Sync + 'static) -> Self {
        self.key = Some(Text::By(Box::new(key)));
        self
    }

    /// Like [`Route::key`], by a template.
    pub fn key_template(mut self, key: Template) -> Self {
        self.key = Some(Text::Template(key));
        self
    }

    /// Adds a header to every message. It replaces a header of the record with the same name, but not a
    /// header of the form.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.header_template(name, Template::of_text(value.into()))
    }

    /// Like [`Route::header`], with a value for each record.
    pub fn header_by(
        mut self,
        name: impl Into<String>,
        value: impl Fn(&Record) -> String + Send + Sync + 'static,
    ) -> Self {
        self.headers.push((name.into(), Text::By(Box::new(value))));
        self
    }

    /// Like [`Route::header`], with a value for each record, by a template.
    pub fn header_template(mut self, name: impl Into<String>, value: Template) -> Self {
        self.headers.push((name.into(), Text::Template(value)));
        self
    }

    /// Sets the form of the messages. Default: [`Form::CloudEvents`].
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Leaves out the headers of CloudEvents: sets [`Form::Plain`].
    pub fn plain(self) -> Self {
        self.form(Form::Plain)
    }

    /// Sets the target of records that fail for good. Such a record is then completed, and the later records
    /// of its key go on.
    pub fn dead_letters(self, target: impl Into<String>) -> Self {
        self.dead_letters_template(Template::of_text(target.into()))
    }

    /// Like [`Route::dead_letters`], with a target for each record, by a template.
    pub fn dead_letters_template(mut self, target: Template) -> Self {
        self.dead_letters = Some(DeadLetters::Target(Text::Template(target)));
        self
    }

    /// Writes records that fail for good into the table `outbox_dead_letter` of the outbox, with their
    /// [`Cause`]. Such a record is then completed, and the later records of its key go on. Replaces
    /// [`Route::dead_letters`].
    pub fn dead_letter_table(mut self) -> Self {
        self.dead_letters = Some(DeadLetters::Table);
        self
    }

    /// Whether the route accepts records of this type.
    pub fn takes(&self, record_type: &str) -> bool {
        self.record_types().takes(record_type)
    }

    /// The message of a record. `source` is the source of its CloudEvent.
    pub fn message<'a>(&'a self, record: &'a Record, source: &'a str, binding: Binding) -> Message<'a> {
        let event = Event::of(record, source);
        self.build(record, &event, binding, &self.target, None)
    }

    /// The dead letter of a record that has failed for good: its message with the headers of a [`Cause`], for
    /// the target of [`Route::dead_letters`]. `None` if the route has no such target.
    pub fn dead_letter<'a>(
        &'a self,
        record: &'a Record,
        failure: &'a Failure,
        source: &'a str,
        binding: Binding,
    ) -> Option<Message<'a>> {
        let Some(DeadLetters::Target(target)) = &self.dead_letters else { return None };
        let event = Event::of(record, source);
        let cause = Cause::of(failure, self.named_target(record, &event, binding));
        Some(self.build(record, &event, binding, target, Some(&cause)))
    }

    /// The target of a record, as a cause names it.
    fn named_target<'a>(&'a self, record: &Record, event: &Event<'a>, binding: Binding) -> Cow<'a, str> {
        let target = self.target.of(record, event);
        if binding == Binding::Http { origin(target) } else { target }
    }

    /// The target of a record as the table of dead letters names it. `None` if the route does not use that
    /// table.
    pub(crate) fn target_in_table(&self, record: &Record, source: &str, binding: Binding) -> Option<String> {
        let event = Event::of(record, source);
        let in_table = matches!(self.dead_letters, Some(DeadLetters::Table));
        in_table.then(|| self.named_target(record, &event, binding).into_owned())
    }

    fn build<'a>(
        &'a self,
        record: &'a Record,
        event: &Event<'a>,
        binding: Binding,
        target: &'a Text,
        cause: Option<&Cause<'a>>,
    ) -> Message<'a> {
        let (mut headers, body) = event.write_form(self.form, binding);
        headers.extend(cause.into_iter().flat_map(Cause::headers));
        for (name, value) in &self.headers {
            write::add(&mut headers, Cow::Borrowed(name), value.of(record, event));
        }
        event.add_own(&mut headers);
        let key = self.key.as_ref().map_or(Cow::Borrowed(event.key), |key| key.of(record, event));
        Message { target: target.of(record, event), key, headers, body }
    }

    /// Whether the route has dead letters.
    pub fn has_dead_letters(&self) -> bool {
        self.dead_letters.is_some()
    }

    /// The record types of the route.
    pub fn record_types(&self) -> &RecordTypes {
        &self.record_types
    }

    /// The targets that are the same for all records, including the target of dead letters. They can be
    /// checked before the first message.
    pub fn fixed_targets(&self) -> impl Iterator<Item = &str> {
        let dead_letters = match &self.dead_letters {
            Some(DeadLetters::Target(target)) => Some(target),
            Some(DeadLetters::Table) | None => None,
        };
        [Some(&self.target), dead_letters].into_iter().flatten().filter_map(Text::fixed)
    }
}

/// Scheme, host and port of a URL. The rest can be a secret.
fn origin(url: Cow<'_, str>) -> Cow<'_, str> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
    match url {
        Cow::Borrowed(url) => Cow::Borrowed(&url[..end]),
        Cow::Owned(url) => Cow::Owned(url[..end].to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_named_without_its_secrets() {
        for (url, expected) in [
            ("https://example.com:1/hooks/T0KEN", "https://example.com:1"),
            ("https://example.com?key=1", "https://example.com"),
            ("https://example.com", "https://example.com"),
            ("orders", "orders"),
        ] {
            assert_eq!(origin(url.into()), expected);
            assert_eq!(origin(url.to_owned().into()), expected);
        }
    }

    #[test]
    fn a_route_without_patterns_takes_all_types() {
        assert!(Route::to("t").takes("any"));
        let route = Route::to("t").events(["a", "b*"]).events(["c"]);
        assert!(["a", "bc", "c"].into_iter().all(|record_type| route.takes(record_type)));
        assert!(!route.takes("d"));
    }
}
