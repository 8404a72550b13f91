//! The settings of a sink.

use std::{fmt, time::Duration};

use crate::{address::Network, sign::Secret};

/// The settings of a sink. `docs/webhook.md` lists all of them.
#[derive(Clone)]
#[must_use = "give it to WebhookSink::new"]
pub struct WebhookConfig {
    pub(crate) source: String,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) unsigned: bool,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry_after: Duration,
    pub(crate) max_retry_after: Duration,
    pub(crate) concurrency: usize,
    pub(crate) http: bool,
    pub(crate) networks: Vec<Network>,
}

/// A setting that is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Neither a secret nor [`WebhookConfig::unsigned`] was given.
    #[error(
        "no secret signs the messages: add one with WebhookConfig::secret, or call WebhookConfig::unsigned"
    )]
    NoSecret,
    /// A setting is outside its range.
    #[error("{name} is {value}, but must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
        /// The permitted values.
        range: &'static str,
    },
    /// A header cannot be sent. The text does not show its value.
    #[error("header {name:?} cannot be sent: {problem}")]
    Header {
        /// The name of the header.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// None of the system's certificates can be read.
    #[error("no root certificate can be read from the system, so no endpoint can be trusted: {problem}")]
    Roots {
        /// The first error.
        problem: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// The debug form shows neither secrets nor values of headers, which can be secrets.
impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("WebhookConfig")
            .field("source", &self.source)
            .field("secrets", &self.secrets.len())
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry_after", &self.retry_after)
            .field("max_retry_after", &self.max_retry_after)
            .field("concurrency", &self.concurrency)
            .field("http", &self.http)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl WebhookConfig {
    /// The defaults. A secret must be added.
    pub fn new() -> Self {
        Self {
            source: "/keylane".to_owned(),
            secrets: Vec::new(),
            unsigned: false,
            headers: Vec::new(),
            timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            retry_after: Duration::from_secs(5),
            max_retry_after: Duration::from_secs(3600),
            concurrency: 32,
            http: false,
            networks: Vec::new(),
        }
    }

    /// Sets the `source` of the CloudEvents. Default `/keylane`.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Signs messages with this secret. With several secrets, each message has one signature per secret: give
    /// both while endpoints change to a new secret.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends messages without a signature.
    pub fn unsigned(mut self) -> Self {
        self.unsigned = true;
        self
    }

    /// Adds a header to every request, such as `authorization`. It replaces a header of a record or a route.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the time limit of a request, including the connection. Then the endpoint counts as away. Default
    /// 15 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time limit to resolve the name and to connect, before TLS. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the pause for an endpoint that is away, unless the endpoint names one. Default 5 s.
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = pause;
        self
    }

    /// Sets the longest pause that an endpoint can ask for with `Retry-After`. Default 1 h. The `max_delay`
    /// of the retry policy limits the wait of a record until its next try.
    pub fn max_retry_after(mut self, pause: Duration) -> Self {
        self.max_retry_after = pause;
        self
    }

    /// Sets the most requests at once. Default 32.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests;
        self
    }

    /// Permits `http` URLs. Default: only `https`.
    pub fn allow_http(mut self) -> Self {
        self.http = true;
        self
    }

    /// Permits endpoints in this range of addresses, although it is not public.
    pub fn allow_network(mut self, network: Network) -> Self {
        self.networks.push(network);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.secrets.is_empty() && !self.unsigned {
            return Err(ConfigError::NoSecret);
        }
        let second = Duration::from_secs(1);
        let durations = [
            ("timeout", self.timeout, second..=300 * second, "from 1 s to 300 s"),
            ("connect_timeout", self.connect_timeout, second / 10..=60 * second, "from 100 ms to 60 s"),
            ("retry_after", self.retry_after, second / 10..=3600 * second, "from 100 ms to 1 h"),
            ("max_retry_after", self.max_retry_after, second..=86400 * second, "from 1 s to 24 h"),
        ];
        for (name, value, allowed, range) in durations {
            if !allowed.contains(&value) {
                return Err(ConfigError::Range { name, value: format!("{value:?}"), range });
            }
        }
        if self.concurrency == 0 {
            return Err(ConfigError::Range {
                name: "concurrency",
                value: "0".to_owned(),
                range: "at least 1",
            });
        }
        for (name, value) in &self.headers {
            crate::request::header(name, value)
                .map_err(|problem| ConfigError::Header { name: name.clone(), problem })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let signed = || WebhookConfig::new().unsigned();
        assert!(matches!(WebhookConfig::new().check(), Err(ConfigError::NoSecret)));
        let text = |config: WebhookConfig| config.check().unwrap_err().to_string();
        assert_eq!(text(signed().timeout(Duration::ZERO)), "timeout is 0ns, but must be from 1 s to 300 s");
        assert_eq!(text(signed().concurrency(0)), "concurrency is 0, but must be at least 1");
        let secret = text(signed().header("authorization", "Bearer hunter2\n"));
        assert!(secret.contains("authorization") && !secret.contains("hunter2"), "{secret}");
        assert!(text(signed().header("Webhook-Id", "1")).contains("the sink's own"));
    }

    #[test]
    fn secrets_stay_out_of_the_debug_form() {
        let config = WebhookConfig::new().header("authorization", "hunter2");
        let shown = format!("{config:?}");
        assert!(shown.contains("authorization") && !shown.contains("hunter2"), "{shown}");
    }
}
