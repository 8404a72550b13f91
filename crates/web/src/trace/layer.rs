//! The layer that gives each request its trace.

use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{TRACE_ID_HEADER, Trace};
use crate::service::{Answering, exchange};

/// Gives each request a [`Trace`]: in its extensions, as the current trace of its task, in the field `trace_id` of a
/// log span named `request`, and in the header `X-Trace-Id` of the response. It belongs outermost.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TraceIdLayer;

impl TraceIdLayer {
    /// The layer. It has no settings.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for TraceIdLayer {
    type Service = TraceIdService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TraceIdService { inner }
    }
}

/// What [`TraceIdLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct TraceIdService<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for TraceIdService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    A: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Answering<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let trace = Trace::of(request.headers());
        let span = tracing::info_span!(target: "keylane_web", "request", trace_id = trace.id());
        request.extensions_mut().insert(trace.clone());
        let mut inner = exchange(&mut self.inner);
        let id = HeaderValue::from_str(trace.id());
        let answer = async move {
            let mut response = inner.call(request).await?;
            if let Ok(id) = id {
                response.headers_mut().insert(TRACE_ID_HEADER, id);
            }
            Ok(response)
        };
        Box::pin(trace.scope(answer.instrument(span)))
    }
}
