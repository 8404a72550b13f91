//! The consequence of each answer for a record. All answers are sorted here.

use std::time::Duration;

use keylane::HandlerError;

/// The consequence of an answer, or of its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The endpoint has accepted the message.
    Delivered,
    /// The endpoint cannot accept messages now. No attempt counts.
    Away,
    /// The endpoint refuses the message, or nothing can be sent to it. The record fails for good.
    Rejected,
    /// Any other answer: the retry policy decides, and the attempt counts.
    Other,
}

/// Sorts an HTTP status.
pub fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Delivered,
        429 | 502..=504 => Verdict::Away,
        // The request came too early or too slowly. The same message can succeed later.
        408 | 425 => Verdict::Other,
        300..=499 => Verdict::Rejected,
        _ => Verdict::Other,
    }
}

/// The reason why a record was not delivered. The text has scheme, host and port of the endpoint. The rest of
/// a URL can be a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No route of the sink accepts the record.
    #[error(
        "no route takes records of type {record_type}: add one with WebhookSink::route, or call WebhookSink::skip_unrouted"
    )]
    Unrouted {
        /// The type of the record.
        record_type: String,
    },
    /// The route yields no valid URL for the record.
    #[error("the route's target is {problem}")]
    Url {
        /// The problem.
        problem: &'static str,
    },
    /// A header cannot be sent.
    #[error("header {name:?} cannot be sent: {problem}")]
    Header {
        /// The name of the header.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// The address is neither public nor allowed.
    #[error("{endpoint} is not sent to: {problem}; WebhookConfig::allow_network allows such addresses")]
    NotPublic {
        /// Scheme, host and port.
        endpoint: String,
        /// The address and its kind.
        problem: String,
    },
    /// The endpoint has answered with a status other than success.
    #[error("{endpoint} answered {status}: {body:?}")]
    Status {
        /// Scheme, host and port.
        endpoint: String,
        /// The status.
        status: u16,
        /// The beginning of the body, at most 200 characters.
        body: String,
    },
    /// The endpoint cannot be reached, or the connection has ended early.
    #[error("{endpoint} cannot be reached: {problem}")]
    Unreachable {
        /// Scheme, host and port.
        endpoint: String,
        /// The error and its sources.
        problem: String,
    },
    /// The endpoint has not answered in time.
    #[error("{endpoint} has not answered within {limit:?}")]
    TimedOut {
        /// Scheme, host and port.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// An earlier request has found the endpoint away, or the endpoint has asked for a pause.
    #[error("{endpoint} is away and left alone for a while")]
    Away {
        /// Scheme, host and port.
        endpoint: String,
    },
}

impl SendError {
    /// The consequence for the record.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Unrouted { .. } | Self::Url { .. } | Self::Header { .. } | Self::NotPublic { .. } => {
                Verdict::Rejected
            }
            Self::Status { status, .. } => verdict(*status),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Away { .. } => Verdict::Away,
        }
    }

    /// The error for the outbox. `pause` is the wait of the record if the endpoint is away.
    pub(crate) fn told(self, pause: Duration) -> HandlerError {
        match self.verdict() {
            Verdict::Rejected => HandlerError::permanent(self).class("webhook-rejected"),
            Verdict::Away => HandlerError::new(self).class("webhook-away").uncounted(pause),
            Verdict::Delivered | Verdict::Other => HandlerError::new(self).class("webhook"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted_as_the_page_says() {
        let table = [
            (Verdict::Delivered, &[200, 201, 202, 204, 299][..]),
            (Verdict::Away, &[429, 502, 503, 504]),
            (Verdict::Rejected, &[300, 301, 302, 307, 400, 401, 403, 404, 409, 410, 413, 422]),
            (Verdict::Other, &[408, 425, 500, 501, 505, 599, 600, 101]),
        ];
        for (expected, statuses) in table {
            for status in statuses {
                assert_eq!(verdict(*status), expected, "{status}");
            }
        }
    }

    #[test]
    fn the_outbox_is_told_what_counts() {
        let told = |status| {
            let error = SendError::Status { endpoint: "e".to_owned(), status, body: String::new() };
            let told = error.told(Duration::from_secs(2));
            (told.fault().permanent, told.fault().unavailable)
        };
        assert_eq!(told(503), (false, true));
        assert_eq!(told(404), (true, false));
        assert_eq!(told(500), (false, false));
    }
}
