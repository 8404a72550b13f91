//! The cause of a dead letter.

use std::borrow::Cow;

use keylane::Failure;

use crate::write::MessageHeaders;

/// The longest text of an error, in bytes.
const ERROR_LIMIT_BYTES: usize = 1000;

/// The cause of a dead letter, in headers beside the headers of its form. Sinks send it, and consumers that
/// give up.
///
/// | header | value |
/// | --- | --- |
/// | `keylane-error` | the error and its causes, on one line of at most 1,000 bytes |
/// | `keylane-error-class` | the class of the error, if it has one |
/// | `keylane-error-kind` | `error`, `timeout`, `panic`, `decode` or `expired` |
/// | `keylane-attempts` | the number of attempts |
/// | `keylane-target` | the target of the message, or the topic that it was read from |
/// | `keylane-handler` | the handler, or the group of the consumer |
/// | `keylane-event-id` | the event id |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause<'a> {
    /// The error and its sources.
    pub error: Cow<'a, str>,
    /// The class of the error.
    pub class: Option<&'a str>,
    /// What ended the last attempt: `error`, `timeout`, `panic`, `decode` or `expired`.
    pub kind: &'a str,
    /// The number of attempts.
    pub attempts: u32,
    /// The target of the message, or the topic that it was read from. Of a URL only scheme, host and port.
    pub target: Cow<'a, str>,
    /// The handler, or the group of the consumer.
    pub handler: &'a str,
    /// The event id, if known.
    pub event_id: Option<Cow<'a, str>>,
}

impl<'a> Cause<'a> {
    /// A cause of the kind `error`, without a class and without an event id.
    pub fn new(
        error: impl Into<Cow<'a, str>>,
        attempts: u32,
        target: impl Into<Cow<'a, str>>,
        handler: &'a str,
    ) -> Self {
        let (error, target) = (error.into(), target.into());
        Self { error, class: None, kind: "error", attempts, target, handler, event_id: None }
    }

    /// The cause of a record that has failed on the way to this target.
    pub fn of(failure: &'a Failure, target: impl Into<Cow<'a, str>>) -> Self {
        let mut error = failure.error.clone();
        for cause in &failure.chain {
            error.push_str(": ");
            error.push_str(cause);
        }
        Self {
            class: failure.class.as_deref(),
            kind: failure.kind.as_str(),
            event_id: Some(failure.delivery.event_id.to_string().into()),
            ..Self::new(error, failure.attempts, target, failure.delivery.handler.as_str())
        }
    }

    /// The headers. They come before the headers of the record, so that a dead letter of a dead letter has
    /// the last cause.
    pub fn headers(&self) -> MessageHeaders<'a> {
        let mut error: String = self.error.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        error.truncate(error.floor_char_boundary(ERROR_LIMIT_BYTES));
        let mut headers: MessageHeaders<'a> = vec![("keylane-error".into(), error.into())];
        headers.extend(self.class.map(|class| ("keylane-error-class".into(), class.into())));
        headers.push(("keylane-error-kind".into(), self.kind.into()));
        headers.push(("keylane-attempts".into(), self.attempts.to_string().into()));
        headers.push(("keylane-target".into(), self.target.clone()));
        headers.push(("keylane-handler".into(), self.handler.into()));
        headers.extend(self.event_id.clone().map(|id| ("keylane-event-id".into(), id)));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_fits_on_one_line() {
        let mut cause = Cause::new("no\nsuch é".repeat(200), 3, "orders", "mailer");
        (cause.class, cause.event_id) = (Some("refused"), Some("7".into()));
        let headers = cause.headers();
        assert!(
            headers[0].1.len() <= ERROR_LIMIT_BYTES && headers[0].1.starts_with("no such é"),
            "{headers:?}"
        );
        let rest: Vec<_> = headers[1..].iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "keylane-error-class: refused",
            "keylane-error-kind: error",
            "keylane-attempts: 3",
            "keylane-target: orders",
            "keylane-handler: mailer",
            "keylane-event-id: 7",
        ];
        assert_eq!(rest, expected);
    }
}
