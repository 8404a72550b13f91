//! The client: one request, its answer, and the pause that the endpoint asks for.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header::RETRY_AFTER};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::time::timeout;

use crate::{
    config::{ConfigError, WebhookConfig},
    connect::{ConnectError, Connector, System},
    verdict::SendError,
};

/// The most bytes of an answer that the client reads.
const READ_LIMIT: usize = 16 * 1024;
/// The time limit for the body of an answer.
const READ_TIME: Duration = Duration::from_secs(1);
/// The most characters of an answer in an error.
const SHOWN_LIMIT: usize = 200;

/// The HTTP client. It follows no redirects and uses no proxy.
pub(crate) struct Client(legacy::Client<HttpsConnector<Connector>, Full<Bytes>>);

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The pause that the endpoint asks for.
    pub(crate) pause: Option<Duration>,
    /// The beginning of the body.
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(config: &WebhookConfig) -> Result<Self, ConfigError> {
        let connector = Connector {
            networks: config.networks.clone().into(),
            resolver: Arc::new(System),
            timeout: config.connect_timeout,
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(config)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(config.concurrency)
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        Ok(Self(client))
    }

    /// Sends a request and reads the beginning of the answer.
    pub(crate) async fn send(
        &self,
        endpoint: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, SendError> {
        let answer = self.0.request(request).await.map_err(|error| sorted(endpoint, &error))?;
        let pause = pause(answer.headers(), SystemTime::now());
        Ok(Answer { status: answer.status().as_u16(), pause, body: beginning(answer).await })
    }
}

fn tls(config: &WebhookConfig) -> Result<ClientConfig, ConfigError> {
    let (mut roots, found) = (RootCertStore::empty(), rustls_native_certs::load_native_certs());
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() && !config.http {
        let problem = found.errors.first().map_or("there are none".to_owned(), ToString::to_string);
        return Err(ConfigError::Roots { problem });
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Tls(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Reads a body to its end or to the limit. The connection can be used again only after the end of the body.
/// The status is known already, so that a missing body changes nothing.
async fn beginning(answer: Response<Incoming>) -> String {
    let (mut body, mut read) = (answer.into_body(), Vec::new());
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            read.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
            if read.len() > READ_LIMIT {
                break;
            }
        }
    };
    let _ = timeout(READ_TIME, all).await;
    shown(&read)
}

/// The beginning of a body for an error, on one line.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN_LIMIT)]).into_owned();
    text.chars().take(SHOWN_LIMIT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The pause in `Retry-After`, given in seconds or as a date.
fn pause(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let until = httpdate::parse_http_date(text).ok()?;
            Some(until.duration_since(now).unwrap_or_default())
        }
    }
}

fn sorted(endpoint: &str, error: &legacy::Error) -> SendError {
    let endpoint = endpoint.to_owned();
    let (mut problem, mut cause) = (error.to_string(), error.source());
    while let Some(found) = cause {
        if let Some(ConnectError::NotPublic { .. }) = found.downcast_ref() {
            return SendError::NotPublic { endpoint, problem: found.to_string() };
        }
        problem = format!("{problem}: {found}");
        cause = found.source();
    }
    SendError::Unreachable { endpoint, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let table = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
        ];
        for (text, expected) in table {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(pause(&headers, now), expected.map(Duration::from_secs), "{text}");
        }
        assert_eq!(pause(&HeaderMap::new(), now), None);
    }

    #[test]
    fn little_of_a_body_is_shown() {
        assert_eq!(shown(b"no\nsuch\x1b[31mhook"), "no such [31mhook");
        assert_eq!(shown("é".repeat(5000).as_bytes()).chars().count(), SHOWN_LIMIT);
    }
}
