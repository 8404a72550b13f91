//! The decisions of the idempotency guard.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, Uri};
use sha2::{Digest, Sha256};

use super::{Answer, Begun, IDEMPOTENCY_KEY_HEADER};
use crate::subject::hex;

/// The longest key, in bytes.
pub(super) const LONGEST_KEY: usize = 128;

/// The status in a store of a key that is under way.
pub(super) const PROCESSING: &str = "PROCESSING";
/// The status in a store of a key that was executed.
pub(crate) const SUCCESS: &str = "SUCCESS";

/// The key of a request, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Absent,
    Given(String),
    /// More than one, or not one to 128 visible characters.
    Bad,
}

pub(super) fn key(headers: &HeaderMap) -> Key {
    let mut values = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(value) = values.next() else { return Key::Absent };
    let is_visible = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = value.to_str().ok().filter(is_visible);
    match text.filter(|text| (1..=LONGEST_KEY).contains(&text.len()) && values.next().is_none()) {
        Some(text) => Key::Given(text.to_owned()),
        None => Key::Bad,
    }
}

/// Whether a repeat of such a request could have an effect at all.
pub(super) fn has_effects(method: &Method) -> bool {
    !method.is_safe()
}

/// The fingerprint of a request. Repeats have the same one, and all other requests have others.
pub(super) fn fingerprint(method: &Method, uri: &Uri, body: &[u8]) -> String {
    let mut digest = Sha256::new();
    let address = uri.path_and_query().map_or("", |address| address.as_str());
    // Neither a method nor an address has a line end, so no two requests give the same input.
    for part in [method.as_str().as_bytes(), b"\n", address.as_bytes(), b"\n", body] {
        digest.update(part);
    }
    hex(&digest.finalize())
}

/// What a record in a store means for a request. `None` if no guard has written it.
pub(crate) fn begun(status: &str, is_same: bool, result: &str) -> Option<Begun> {
    match status {
        PROCESSING | SUCCESS if !is_same => Some(Begun::OtherRequest),
        PROCESSING => Some(Begun::InProgress),
        SUCCESS => Answer::from_text(result).map(Begun::Done),
        _ => None,
    }
}

/// Whether an answer is kept. After an answer that is not kept, the key is free again.
pub(super) fn is_kept(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// How long a handler may take. The rest of the lease is for the store.
pub(super) fn time_of_handler(lease: Duration) -> Duration {
    lease / 10 * 9
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_key_is_one_to_128_visible_characters() {
        let of = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IDEMPOTENCY_KEY_HEADER, HeaderValue::from_bytes(value).unwrap());
            }
            key(&headers)
        };
        assert_eq!(of(&[]), Key::Absent);
        let longest = [b'k'; 128];
        assert_eq!(of(&[&longest]), Key::Given("k".repeat(128)));
        for bad in [&b""[..], b"a b", b"\xff", &[b'k'; 129]] {
            assert_eq!(of(&[bad]), Key::Bad);
        }
        assert_eq!(of(&[b"a", b"a"]), Key::Bad);
    }

    #[test]
    fn requests_differ_by_method_address_and_body() {
        let uri = |text: &'static str| Uri::from_static(text);
        let prints = [
            fingerprint(&Method::POST, &uri("/a"), b"x"),
            fingerprint(&Method::PUT, &uri("/a"), b"x"),
            fingerprint(&Method::POST, &uri("/b"), b"x"),
            fingerprint(&Method::POST, &uri("/a?b"), b"x"),
            fingerprint(&Method::POST, &uri("/a"), b"y"),
            fingerprint(&Method::POST, &uri("/"), b"a\nx"),
        ];
        let distinct: std::collections::BTreeSet<&String> = prints.iter().collect();
        assert_eq!(distinct.len(), prints.len());
        assert_eq!(prints[0], fingerprint(&Method::POST, &uri("http://host/a"), b"x"));
    }

    #[test]
    fn a_record_says_what_to_do() {
        let answer = Answer::not_kept(StatusCode::OK);
        let text = answer.to_text();
        assert_eq!(begun(PROCESSING, true, ""), Some(Begun::InProgress));
        assert_eq!(begun(SUCCESS, true, &text), Some(Begun::Done(answer)));
        assert_eq!(begun(SUCCESS, false, &text), Some(Begun::OtherRequest));
        assert_eq!(begun(PROCESSING, false, ""), Some(Begun::OtherRequest));
        assert_eq!((begun(SUCCESS, true, "?"), begun("OTHER", true, &text)), (None, None));
    }

    #[test]
    fn failures_free_the_key() {
        assert!(is_kept(StatusCode::CREATED) && is_kept(StatusCode::SEE_OTHER));
        assert!(!is_kept(StatusCode::BAD_REQUEST) && !is_kept(StatusCode::BAD_GATEWAY));
        assert!(has_effects(&Method::POST) && has_effects(&Method::DELETE) && !has_effects(&Method::GET));
    }
}
