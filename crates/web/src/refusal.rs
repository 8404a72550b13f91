//! Refusals: the answers of a guard or a handler instead of a result.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    body::{GuardBody, full},
    trace::Trace,
};

/// The codes of results and errors.
pub mod code {
    /// A result.
    pub const OK: &str = "00000";
    /// An error of the client.
    pub const CLIENT: &str = "A0001";
    /// A header or a body that a guard does not take.
    pub const BAD_REQUEST: &str = "A0400";
    /// A request with the same idempotency key is under way.
    pub const IN_PROGRESS: &str = "A0401";
    /// Another request had the same idempotency key.
    pub const OTHER_REQUEST: &str = "A0402";
    /// The request was done, but its answer was not kept.
    pub const ANSWER_NOT_KEPT: &str = "A0403";
    /// Too many requests.
    pub const TOO_MANY_REQUESTS: &str = "A0500";
    /// An error of the service.
    pub const SERVICE: &str = "B0001";
    /// The handler took too long, and was stopped.
    pub const TIMED_OUT: &str = "B0100";
    /// An error of what the service depends on.
    pub const DEPENDENCY: &str = "C0001";
}

/// An error as its client sees it: a status of HTTP, a code and a sentence.
///
/// [`response`](Self::response) is the error envelope; [`EnvelopeLayer`](crate::EnvelopeLayer) can make Problem+JSON
/// of it. The message goes to the client: keep secrets out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    code: Cow<'static, str>,
    message: Cow<'static, str>,
    headers: HeaderMap,
}

/// The form of error answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorForm {
    /// `{"code", "message", "traceId", "data": null}`.
    #[default]
    Envelope,
    /// `application/problem+json` of RFC 9457, with `code` and `traceId` beside its own members.
    Problem,
}

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(rename = "traceId", skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(rename = "traceId")]
    trace_id: Option<&'a str>,
    data: (),
}

impl Refusal {
    /// A refusal.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code: code.into(), message: message.into(), headers: HeaderMap::new() }
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The code in the answer.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The response, as an envelope with the id of the current trace. It has the refusal in its extensions.
    pub fn response(self) -> Response<GuardBody> {
        self.in_form(ErrorForm::Envelope)
    }

    /// The response in a form.
    pub(crate) fn in_form(self, form: ErrorForm) -> Response<GuardBody> {
        let trace = Trace::current();
        let trace_id = trace.as_ref().map(Trace::id);
        let (code, message) = (&*self.code, &*self.message);
        let (media_type, text) = match form {
            ErrorForm::Envelope => {
                ("application/json", serde_json::to_vec(&Envelope { code, message, trace_id, data: () }))
            }
            ErrorForm::Problem => {
                let title = self.status.canonical_reason().unwrap_or("error");
                let status = self.status.as_u16();
                let problem =
                    Problem { r#type: "about:blank", title, status, detail: message, code, trace_id };
                ("application/problem+json", serde_json::to_vec(&problem))
            }
        };
        // Texts and numbers can always be written.
        let mut response = Response::new(full(text.unwrap_or_default()));
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers.clone());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        response.extensions_mut().insert(self);
        response
    }
}
