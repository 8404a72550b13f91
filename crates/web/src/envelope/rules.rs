//! The decisions of the error envelope: which answers become errors, and with which text.

use http::StatusCode;

use crate::refusal::{Refusal, code};

/// The longest text of a service that becomes the message of an error, in bytes.
pub(super) const LONGEST_MESSAGE: usize = 1_000;

/// Whether an answer becomes an error of the common form: it is an error, and has no form of its own.
pub(super) fn is_formless(status: StatusCode, media_type: Option<&str>) -> bool {
    let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json");
    (status.is_client_error() || status.is_server_error()) && !is_json
}

/// Whether the text of an answer is for its client. The text of a failure inside of the service is not: it may have
/// what clients should not know.
pub(super) fn is_shown(status: StatusCode, media_type: Option<&str>) -> bool {
    status.is_client_error() && media_type.is_some_and(|media_type| media_type.starts_with("text/plain"))
}

/// The error that such an answer becomes.
pub(super) fn refusal_of(status: StatusCode, text: Option<String>) -> Refusal {
    let code = match status {
        StatusCode::TOO_MANY_REQUESTS => code::TOO_MANY_REQUESTS,
        status if status.is_client_error() => code::CLIENT,
        _ => code::SERVICE,
    };
    let text = text.filter(|text| !text.is_empty() && text.len() <= LONGEST_MESSAGE);
    match text {
        Some(text) => Refusal::new(status, code, text),
        None => Refusal::new(status, code, status.canonical_reason().unwrap_or("error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_without_a_form_are_given_one() {
        let (ok, bad, failed) = (StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::BAD_GATEWAY);
        assert!(is_formless(bad, None) && is_formless(failed, Some("text/html")));
        assert!(!is_formless(ok, None) && !is_formless(StatusCode::FOUND, Some("text/plain")));
        assert!(!is_formless(bad, Some("application/json; charset=utf-8")));
        assert!(!is_formless(failed, Some("application/problem+json")));
    }

    #[test]
    fn a_client_sees_what_it_did_and_not_what_failed_inside() {
        let plain = Some("text/plain; charset=utf-8");
        assert!(is_shown(StatusCode::NOT_FOUND, plain));
        assert!(!is_shown(StatusCode::INTERNAL_SERVER_ERROR, plain));
        assert!(
            !is_shown(StatusCode::NOT_FOUND, Some("text/html")) && !is_shown(StatusCode::NOT_FOUND, None)
        );
    }

    #[test]
    fn the_code_follows_the_status() {
        let code = |status| refusal_of(status, None).code().to_owned();
        assert_eq!(code(StatusCode::TOO_MANY_REQUESTS), "A0500");
        assert_eq!(
            (code(StatusCode::NOT_FOUND), code(StatusCode::BAD_GATEWAY)),
            ("A0001".into(), "B0001".into())
        );
        let long = refusal_of(StatusCode::NOT_FOUND, Some("x".repeat(LONGEST_MESSAGE + 1)));
        assert_eq!(long, refusal_of(StatusCode::NOT_FOUND, None));
        assert_ne!(long, refusal_of(StatusCode::NOT_FOUND, Some("x".repeat(LONGEST_MESSAGE))));
    }
}
