//! Texts with names in braces, such as `{key}`. They do in a configuration file what a closure does in code.

use std::borrow::Cow;

use crate::event::Event;

/// A text with names in braces, which an event fills in.
///
/// | name | stands for |
/// | --- | --- |
/// | `{key}` | the record key |
/// | `{type}` | the record type |
/// | `{id}` | the event id |
/// | `{sequence}` | the record id |
/// | `{source}` | the source of the sink |
/// | `{content_type}` | the media type of the payload |
/// | `{trace_id}` | the trace id, or nothing |
/// | `{header.NAME}` | the header NAME given at scheduling, or nothing |
/// | `{{`, `}}` | a brace |
///
/// ```
/// use keylane_message::{Event, Template};
///
/// let template = Template::parse("orders-{type}")?;
/// assert_eq!(template.text(&Event::new("1", "placed", "order-42", b"{}")), "orders-placed");
/// assert!(Template::parse("{kye}").is_err());
/// # Ok::<(), keylane_message::TemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    Type,
    Id,
    Sequence,
    Source,
    ContentType,
    TraceId,
    Header(String),
}

/// The reason why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A name in braces is unknown.
    #[error(
        "template {template:?} names {{{name}}}, which is not one of {{key}}, {{type}}, {{id}}, {{sequence}}, {{source}}, {{content_type}}, {{trace_id}}, {{header.NAME}}"
    )]
    Name {
        /// The whole text.
        template: String,
        /// The text between the braces.
        name: String,
    },
    /// A brace has no counterpart.
    #[error("template {template:?} has a single brace: write {{{{ or }}}} for a brace that is to stay")]
    Brace {
        /// The whole text.
        template: String,
    },
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// The text has an unknown name, or a brace without its counterpart.
    pub fn parse(template: &str) -> Result<Self, TemplateError> {
        let brace = || TemplateError::Brace { template: template.to_owned() };
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            text.push_str(before);
            if after.starts_with("{{") || after.starts_with("}}") {
                text.push_str(&after[..1]);
                rest = &after[2..];
                continue;
            }
            let inner = after.strip_prefix('{').ok_or_else(brace)?;
            let (name, behind) = inner.split_once('}').ok_or_else(brace)?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            let unknown = || TemplateError::Name { template: template.to_owned(), name: name.to_owned() };
            pieces.push(Piece::named(name).ok_or_else(unknown)?);
            rest = behind;
        }
        text.push_str(rest);
        if !text.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self(pieces))
    }

    /// The text for an event.
    pub fn text<'a>(&'a self, event: &Event<'a>) -> Cow<'a, str> {
        match self.0.as_slice() {
            [piece] => piece.text(event),
            pieces => pieces.iter().map(|piece| piece.text(event)).collect::<String>().into(),
        }
    }

    /// The text, if it is the same for all events.
    pub fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// A template that yields this text unchanged, including braces.
    pub(crate) fn of_text(text: String) -> Self {
        Self(vec![Piece::Text(text)])
    }
}

impl Piece {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "key" => Self::Key,
            "type" => Self::Type,
            "id" => Self::Id,
            "sequence" => Self::Sequence,
            "source" => Self::Source,
            "content_type" => Self::ContentType,
            "trace_id" => Self::TraceId,
            _ => Self::Header(name.strip_prefix("header.").filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    fn text<'a>(&'a self, event: &Event<'a>) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Key => Cow::Borrowed(event.key),
            Self::Type => Cow::Borrowed(event.record_type),
            Self::Id => event.id.clone(),
            Self::Sequence => event.sequence.map(|number| number.to_string()).unwrap_or_default().into(),
            Self::Source => Cow::Borrowed(event.source),
            Self::ContentType => Cow::Borrowed(event.content_type),
            Self::TraceId => Cow::Borrowed(event.trace_id().unwrap_or_default()),
            Self::Header(name) => Cow::Borrowed(event.headers.get(name).map_or("", String::as_str)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn names_are_filled_in() {
        let headers = BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]);
        let mut event = Event::new("7", "order.placed", "order-42", b"{}");
        (event.headers, event.sequence) = (&headers, Some(3));
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("{key}", "order-42"),
            ("{header.tenant}/{key}", "acme/order-42"),
            ("{header.none}", ""),
            ("{id}{sequence}{type}", "73order.placed"),
            ("{{{type}}}", "{order.placed}"),
            ("{content_type} {source} {trace_id}", "application/json /keylane "),
        ];
        for (template, expected) in table {
            assert_eq!(Template::parse(template).unwrap().text(&event), expected, "{template}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for template in ["{", "}", "{key", "a}b", "{key}}"] {
            assert!(matches!(Template::parse(template), Err(TemplateError::Brace { .. })), "{template}");
        }
        for template in ["{}", "{kye}", "{header.}", "{ key }"] {
            let error = Template::parse(template).unwrap_err();
            assert!(error.to_string().contains("is not one of {key}"), "{error}");
        }
    }
}
