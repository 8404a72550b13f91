//! What an answer means for a record: sorted once, here.

use std::time::Duration;

use keylane::HandlerError;

/// What an answer or its absence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The endpoint has taken the message.
    Delivered,
    /// The endpoint cannot take messages now: no attempt counts.
    Away,
    /// The endpoint refuses the message, or cannot be sent to: the record fails for good.
    Rejected,
    /// None of these: the retry policy decides, and the attempt counts.
    Other,
}

/// Sorts a status of HTTP.
pub fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Delivered,
        429 | 502..=504 => Verdict::Away,
        // Too early, or too slow: the same message can pass later.
        408 | 425 => Verdict::Other,
        300..=499 => Verdict::Rejected,
        _ => Verdict::Other,
    }
}

/// Why a record was not delivered. An endpoint is named by scheme, host and port: the rest of a URL can be a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No route of the sink takes the record.
    #[error(
        "no route takes records of type {record_type}: add one with WebhookSink::route, or call WebhookSink::skip_unrouted"
    )]
    Unrouted {
        /// The type of the record.
        record_type: String,
    },
    /// What the route makes of the record is no URL that can be sent to.
    #[error("the route's target is {problem}")]
    Url {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A header cannot be sent.
    #[error("header {name:?} cannot be sent: {problem}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The address is not public, and not allowed.
    #[error("{endpoint} is not sent to: {problem}; WebhookConfig::allow_network allows such addresses")]
    NotPublic {
        /// Scheme, host and port.
        endpoint: String,
        /// The address, and what it is.
        problem: String,
    },
    /// The endpoint has answered with another status than of success.
    #[error("{endpoint} answered {status}: {body:?}")]
    Status {
        /// Scheme, host and port.
        endpoint: String,
        /// The status.
        status: u16,
        /// The beginning of its body, at most 200 characters.
        body: String,
    },
    /// The endpoint cannot be reached, or the connection has ended early.
    #[error("{endpoint} cannot be reached: {problem}")]
    Unreachable {
        /// Scheme, host and port.
        endpoint: String,
        /// The error and its causes.
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
    /// The endpoint is away, as an earlier request has found, or has asked for a pause.
    #[error("{endpoint} is away and left alone for a while")]
    Away {
        /// Scheme, host and port.
        endpoint: String,
    },
}

impl SendError {
    /// What it means for the record.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Unrouted { .. } | Self::Url { .. } | Self::Header { .. } | Self::NotPublic { .. } => {
                Verdict::Rejected
            }
            Self::Status { status, .. } => verdict(*status),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Away { .. } => Verdict::Away,
        }
    }

    /// What the outbox is told. `pause`: how long the record is to wait if the endpoint is away.
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
