//! The layer that gives errors their form.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::rules::{LONGEST_MESSAGE, is_formless, is_shown, refusal_of};
use crate::{
    body::{BoxError, GuardBody, Read, boxed, read},
    refusal::{ErrorForm, Refusal},
    service::{Answering, caught, exchange},
};

/// Gives all errors one form, with the trace id: refusals of guards and handlers, answers with a status of 400 and
/// more that are not JSON, errors of the services inside, and panics. It belongs inside of
/// [`TraceIdLayer`](crate::TraceIdLayer) and outside of all others. Results stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvelopeLayer {
    form: ErrorForm,
}

impl EnvelopeLayer {
    /// The layer, for envelopes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The form of errors; [`ErrorForm::Envelope`] by default.
    #[must_use]
    pub fn form(mut self, form: ErrorForm) -> Self {
        self.form = form;
        self
    }
}

impl<S> Layer<S> for EnvelopeLayer {
    type Service = EnvelopeService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        EnvelopeService { inner, form: self.form, failed: false }
    }
}

/// What [`EnvelopeLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct EnvelopeService<S> {
    inner: S,
    form: ErrorForm,
    /// The service inside cannot get ready: the next call says so.
    failed: bool,
}

impl<S, A, B> Service<Request<A>> for EnvelopeService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    A: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GuardBody>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context).map(|ready| {
            self.failed = ready.map_err(|error| failed(&error.into())).is_err();
            Ok(())
        })
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (form, mut inner) = (self.form, exchange(&mut self.inner));
        if std::mem::take(&mut self.failed) {
            return Box::pin(async move { Ok(of_service().in_form(form)) });
        }
        Box::pin(async move {
            let response = match caught(async move { inner.call(request).await }).await {
                Ok(Ok(response)) => response.map(boxed),
                Ok(Err(error)) => {
                    failed(&error.into());
                    return Ok(of_service().in_form(form));
                }
                Err(_) => {
                    tracing::error!(target: "keylane_web", "a handler has panicked");
                    return Ok(of_service().in_form(form));
                }
            };
            Ok(formed(response, form).await)
        })
    }
}

fn failed(error: &BoxError) {
    tracing::error!(target: "keylane_web", error = &**error as &dyn std::error::Error, "a request has failed");
}

fn of_service() -> Refusal {
    refusal_of(StatusCode::INTERNAL_SERVER_ERROR, None)
}

/// The response in the form of errors, if it is one.
async fn formed(mut response: Response<GuardBody>, form: ErrorForm) -> Response<GuardBody> {
    let refusal = match response.extensions_mut().remove::<Refusal>() {
        Some(refusal) => refusal,
        None => {
            let media_type =
                response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let status = response.status();
            if !is_formless(status, media_type) {
                return response;
            }
            let is_shown = is_shown(status, media_type);
            let (head, body) = response.into_parts();
            let text = if is_shown { text(body).await } else { None };
            response = Response::from_parts(head, crate::body::full(Bytes::new()));
            refusal_of(status, text)
        }
    };
    let mut answer = refusal.in_form(form);
    let known = answer.headers().clone();
    let (head, _) = response.into_parts();
    answer.headers_mut().extend(others(head.headers, &known));
    answer
}

/// The headers of the replaced answer, except those about its body.
fn others(mut headers: HeaderMap, known: &HeaderMap) -> HeaderMap {
    let of_body = [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING, header::ETAG];
    for name in known.keys().chain(&of_body) {
        headers.remove(name);
    }
    headers
}

async fn text(body: GuardBody) -> Option<String> {
    match read(body, LONGEST_MESSAGE).await {
        Ok(Read::Whole(bytes)) => String::from_utf8(bytes.into()).ok(),
        Ok(Read::TooLong(_)) | Err(_) => None,
    }
}
