//! The record types that a handler takes.

use std::any::type_name;

use crate::record::OutboxEvent;

/// Matches any text in a record type of a handler. By itself it stands for every type.
pub(crate) const ANY_TEXT: char = '*';

/// The record types that a handler takes.
///
/// ```
/// use keylane::RecordTypes;
///
/// let types = RecordTypes::types(["order.*", "refund.paid"]);
/// assert!(types.takes("order.placed") && types.takes("refund.paid"));
/// assert!(!types.takes("refund.asked"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordTypes {
    /// `None` for every record type.
    pub(crate) record_types: Option<Vec<String>>,
    /// The Rust type that the handler decodes, or `None` if it takes raw records.
    pub(crate) event: Option<&'static str>,
}

/// A record type and a handler that takes it, as stored in `outbox_handler`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Route {
    /// A record type, in which `*` matches any text. `*` alone stands for every type.
    pub record_type: String,
    /// The handler id.
    pub handler: String,
}

impl RecordTypes {
    /// The record type of one event.
    pub fn event<E: OutboxEvent>() -> Self {
        Self { record_types: Some(vec![E::RECORD_TYPE.to_owned()]), event: Some(type_name::<E>()) }
    }

    /// These record types; a `*` stands for any text.
    pub fn types<T: Into<String>>(record_types: impl IntoIterator<Item = T>) -> Self {
        Self { record_types: Some(record_types.into_iter().map(Into::into).collect()), event: None }
    }

    /// Every record type.
    pub fn all() -> Self {
        Self { record_types: None, event: None }
    }

    /// The types of both.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        match (self.record_types, others.record_types) {
            (Some(these), Some(those)) => Self::types(these.into_iter().chain(those)),
            _ => Self::all(),
        }
    }

    /// The names and patterns; `None` for every record type.
    pub fn patterns(&self) -> Option<&[String]> {
        self.record_types.as_deref()
    }

    /// Whether the handler takes this record type.
    pub fn takes(&self, record_type: &str) -> bool {
        let types = self.record_types.as_ref();
        types.is_none_or(|types| types.iter().any(|pattern| is_of_pattern(record_type, pattern)))
    }
}

/// Whether a record type matches this pattern.
pub(crate) fn is_of_pattern(record_type: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once(ANY_TEXT) else { return pattern == record_type };
    let Some(text) = record_type.strip_prefix(start) else { return false };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| is_of_pattern(&text[at..], rest))
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
            ("a_c", "abc", false),
            ("\u{e9}*", "\u{e9}t\u{e9}", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(is_of_pattern(text, pattern), expected, "{pattern} {text}");
        }
    }
}
