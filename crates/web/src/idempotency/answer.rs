//! The answer of an execution, as it is kept.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::REPLAYED_HEADER;
use crate::{
    body::{GuardBody, full},
    refusal::{Refusal, code},
};

/// Headers that belong to one connection or one response, not to the answer.
const NOT_KEPT: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The answer of an execution: status, headers and body. Trailers are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// `None` if the answer was too large to be kept.
    body: Option<Bytes>,
}

/// The text in a store.
#[derive(Serialize, Deserialize)]
struct Text {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl Answer {
    /// An answer. Headers of the connection are left out.
    pub fn new(status: StatusCode, mut headers: HeaderMap, body: Bytes) -> Self {
        NOT_KEPT.iter().for_each(|name| _ = headers.remove(name));
        Self { status, headers, body: Some(body) }
    }

    /// An answer in JSON.
    ///
    /// # Errors
    /// That of the value, if it cannot be written as JSON.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self::new(status, headers, serde_json::to_vec(value)?.into()))
    }

    /// The response with this answer.
    pub fn response(&self) -> Response<GuardBody> {
        let mut response = Response::new(full(self.body.clone().unwrap_or_default()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }

    /// Of an execution whose answer was too large: a repeat learns that it was done.
    pub(super) fn not_kept(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: None }
    }

    /// The length of its headers and its body, in bytes.
    pub(super) fn length(&self) -> usize {
        let of_header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        self.headers.iter().map(of_header).sum::<usize>() + self.body.as_ref().map_or(0, Bytes::len)
    }

    /// As a store keeps it: JSON, whose bytes are in base64.
    pub fn to_text(&self) -> String {
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), STANDARD.encode(value.as_bytes()))
        };
        let text = Text {
            status: self.status.as_u16(),
            headers: self.headers.iter().map(header).collect(),
            body: self.body.as_ref().map(|body| STANDARD.encode(body)),
        };
        // Texts and numbers can always be written.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Reads what [`to_text`](Self::to_text) has written; `None` if it is anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let Text { status, headers, body } = serde_json::from_str(text).ok()?;
        let mut read = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(&STANDARD.decode(value).ok()?).ok()?;
            read.append(HeaderName::try_from(name).ok()?, value);
        }
        let body = body.map(|body| STANDARD.decode(body).map(Bytes::from)).transpose().ok()?;
        Some(Self { status: StatusCode::from_u16(status).ok()?, headers: read, body })
    }

    /// The response to a repeat.
    pub(super) fn replay(self) -> Response<GuardBody> {
        let replayed = HeaderValue::from_static("true");
        if self.body.is_none() {
            let message = "the request was done, but its answer was too large to be kept for a repeat";
            let refusal = Refusal::new(StatusCode::CONFLICT, code::ANSWER_NOT_KEPT, message);
            return refusal.header(REPLAYED_HEADER, replayed).response();
        }
        let mut response = self.response();
        response.headers_mut().insert(REPLAYED_HEADER, replayed);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_it_was() {
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a=1"));
        headers.append("set-cookie", HeaderValue::from_bytes(b"b=\xff").unwrap());
        headers.append("date", HeaderValue::from_static("today"));
        let answer = Answer::new(StatusCode::CREATED, headers, Bytes::from_static(b"\x00\xff{}"));
        assert!(!answer.headers.contains_key("date"));
        assert_eq!(answer.length(), 2 * ("set-cookie".len() + 3) + 4);
        assert_eq!(Answer::from_text(&answer.to_text()), Some(answer));
        let not_kept = Answer::not_kept(StatusCode::OK);
        assert_eq!(Answer::from_text(&not_kept.to_text()), Some(not_kept));
    }

    #[test]
    fn what_is_no_answer_is_not_read() {
        for text in ["", "{}", r#"{"status":99999}"#, r#"{"status":200,"body":"?"}"#, r#"{"status":7}"#] {
            assert_eq!(Answer::from_text(text), None, "{text}");
        }
        let header = r#"{"status":200,"headers":[["a b",""]]}"#;
        assert_eq!(Answer::from_text(header), None);
    }
}
