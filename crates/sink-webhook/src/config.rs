//! The settings of a sink.

use std::{fmt, time::Duration};

use crate::{address::Network, sign::Secret};

/// How a sink reaches its endpoints. All settings are in `docs/webhook.md`.
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

/// A setting that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing signs the messages.
    #[error(
        "no secret signs the messages: add one with WebhookConfig::secret, or call WebhookConfig::unsigned"
    )]
    NoSecret,
    /// A setting is outside its range.
    #[error("{name} is {value}, but must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// A header that cannot be sent. The text has nothing of its value.
    #[error("header {name:?} cannot be sent: {problem}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No certificate of the system can be read.
    #[error("no root certificate can be read from the system, so no endpoint can be trusted: {problem}")]
    Roots {
        /// The first error.
        problem: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Secrets, and values of headers, which can be secrets, stay out of the debug form.
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
    /// The defaults. A secret is missing yet.
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

    /// The `source` of the CloudEvents. Default `/keylane`.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Signs messages with this secret. With several secrets each message has a signature of each: while endpoints
    /// change to a new secret, the sink has both.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends messages without a signature.
    pub fn unsigned(mut self) -> Self {
        self.unsigned = true;
        self
    }

    /// A header of every request, such as `authorization`. It wins over one of a record or route.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long a request may take, with connecting, until the endpoint counts as away. Default 15 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long it may take to resolve the name and to connect, before TLS. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an endpoint that is away is left alone, if it does not say so itself. Default 5 s.
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = pause;
        self
    }

    /// The longest pause that an endpoint can ask for with `Retry-After`. Default 1 h. The retry policy's `max_delay`
    /// bounds how long a record waits before it asks again.
    pub fn max_retry_after(mut self, pause: Duration) -> Self {
        self.max_retry_after = pause;
        self
    }

    /// The most requests at once. Default 32.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests;
        self
    }

    /// Takes URLs of `http`, too. Default: `https` only.
    pub fn allow_http(mut self) -> Self {
        self.http = true;
        self
    }

    /// Takes endpoints in this range of addresses, though they are not public.
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
