//! The request of a message: its URL, its headers, its signatures.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use keylane::Record;
use keylane_message::Message;

use crate::{config::WebhookConfig, verdict::SendError};

/// Headers that belong to the sink or to the connection. Such a header of a record or a route is left out.
const OWN: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// The URL of the request, and its name in errors, without path and query, which can be secrets.
pub(crate) fn endpoint(url: &str, config: &WebhookConfig) -> Result<(Uri, String), SendError> {
    let wrong = |problem| SendError::Url { problem };
    let uri: Uri = url.parse().map_err(|_| wrong("no URL"))?;
    let authority = uri.authority().ok_or(wrong("no URL with a scheme and a host"))?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if config.http => {}
        Some("http") => return Err(wrong("a URL of http: use https, or call WebhookConfig::allow_http")),
        _ => return Err(wrong("a URL of another scheme than https")),
    }
    if authority.as_str().contains('@') {
        return Err(wrong("a URL with credentials: send them in the header authorization"));
    }
    if authority.host().is_empty() {
        return Err(wrong("a URL without a host"));
    }
    let endpoint = format!("{}://{authority}", uri.scheme_str().unwrap_or_default());
    Ok((uri, endpoint))
}

/// The request of a record, signed with the present time.
pub(crate) fn request(
    uri: Uri,
    message: Message<'_>,
    record: &Record,
    config: &WebhookConfig,
) -> Result<Request<Full<Bytes>>, SendError> {
    let body = Bytes::from(message.body.into_owned());
    let mut request = Request::new(Full::new(body.clone()));
    (*request.method_mut(), *request.uri_mut()) = (Method::POST, uri);
    let id = record.delivery.event_id.to_string();
    let headers = request.headers_mut();
    let own = config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in own.chain(message.headers.iter().map(|(name, value)| (&**name, &**value))) {
        if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            continue;
        }
        let (field, value) =
            header(name, value).map_err(|problem| SendError::Header { name: name.to_owned(), problem })?;
        headers.entry(field).or_insert(value);
    }
    // The form `plain` adds no headers, but HTTP has a standard header for the media type.
    if let Ok(value) = HeaderValue::from_str(&record.delivery.content_type) {
        headers.entry(header::CONTENT_TYPE).or_insert(value);
    }
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("keylane-webhook/", env!("CARGO_PKG_VERSION"))));
    // The signed text requires an id without a full stop. A UUID has none.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    insert(headers, "idempotency-key", &id);
    insert(headers, "webhook-id", &id);
    insert(headers, "webhook-timestamp", &seconds.to_string());
    let signatures: Vec<String> =
        config.secrets.iter().map(|secret| secret.sign(&id, seconds, &body)).collect();
    if !signatures.is_empty() {
        insert(headers, "webhook-signature", &signatures.join(" "));
    }
    Ok(request)
}

/// An HTTP header, if its name and value are valid.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err("it is the sink's own, or one of the connection");
    }
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "the name is not one of HTTP")?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| "the value has control characters")?;
    Ok((name, value))
}

/// Sets a header of the sink. Its texts are always valid.
fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_checked_before_anything_is_sent() {
        let config = WebhookConfig::new();
        let refused = |url: &str| endpoint(url, &config).unwrap_err().to_string();
        let (_, name) = endpoint("https://example.com:8443/hooks/T0KEN?key=1", &config).unwrap();
        assert_eq!(name, "https://example.com:8443", "path and query stay out of errors");
        assert!(refused("http://example.com/").contains("allow_http"));
        assert!(endpoint("http://example.com/", &WebhookConfig::new().allow_http()).is_ok());
        assert!(refused("https://user:hunter2@example.com/").contains("the header authorization"));
        assert!(refused("ftp://example.com/").contains("another scheme"));
        for url in ["", "/hooks", "example.com", "https://", "https:///x", "not a url"] {
            assert!(endpoint(url, &config).is_err(), "{url}");
        }
    }

    #[test]
    fn headers_of_the_connection_and_of_the_signature_cannot_be_set() {
        for name in ["Host", "content-length", "Transfer-Encoding", "webhook-signature"] {
            assert!(header(name, "1").is_err(), "{name}");
        }
        assert!(header("x y", "1").is_err());
        assert!(header("x", "1\r\nHost: evil").is_err());
        assert!(header("x-tenant", "acme").is_ok());
    }
}
