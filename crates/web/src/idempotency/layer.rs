//! The layer that executes a request once per key.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{
    Claim, IdempotencyStore,
    execution::{Execution, failed},
    rules::{self, Key},
};
use crate::{
    body::{BoxError, GuardBody, Read, boxed, full, read},
    error::SettingError,
    refusal::{Refusal, code},
    service::{Answering, exchange},
    subject::{check_name, keyed},
    trace::Trace,
};

const LEASE: Duration = Duration::from_secs(60);
const KEEP: Duration = Duration::from_secs(24 * 3_600);
const LEASES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
const KEEPS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 24 * 3_600));
/// The most bytes of a body, either way.
const BODY_LIMIT: usize = 1024 * 1024;

type SubjectOf = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Executes a request with the header `X-Idempotency-Key` once, and answers its repeats from a store.
///
/// Requests without the header, and those whose method is safe (`GET`, `HEAD`, `OPTIONS`, `TRACE`), pass unchanged.
/// The execution is a task of its own: it goes on if the client disconnects, and is stopped after nine tenths of the
/// lease.
#[derive(Clone)]
pub struct IdempotencyLayer {
    settings: Arc<IdempotencyBuilder>,
}

/// The settings of an [`IdempotencyLayer`].
#[must_use = "call build"]
pub struct IdempotencyBuilder {
    store: Arc<dyn IdempotencyStore>,
    scope: String,
    subject: Option<SubjectOf>,
    required: bool,
    lease: Duration,
    keep: Duration,
    request_limit: usize,
    answer_limit: usize,
}

impl IdempotencyLayer {
    /// Keys of this scope, in a store such as [`Redis`](crate::Redis).
    pub fn builder(store: impl IdempotencyStore, scope: impl Into<String>) -> IdempotencyBuilder {
        IdempotencyBuilder {
            store: Arc::new(store),
            scope: scope.into(),
            subject: None,
            required: false,
            lease: LEASE,
            keep: KEEP,
            request_limit: BODY_LIMIT,
            answer_limit: BODY_LIMIT,
        }
    }
}

impl IdempotencyBuilder {
    /// A scope for each subject, such as the verified user of a request. Without it, a client that knows the key and the
    /// request of another client gets that client's answer.
    pub fn by(mut self, subject: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.subject = Some(Box::new(subject));
        self
    }

    /// Refuses requests without a key, with 400 and `A0400`, unless their method is safe.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// How long a key stays claimed if its process dies; 60 s by default, 1 s to 1 hour. A handler may take nine
    /// tenths of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long an answer is kept; 24 hours by default, 1 s to 30 days.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// The most bytes of the body of a request with a key; 1 MiB by default. It is held in memory.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.request_limit = bytes;
        self
    }

    /// The most bytes of an answer that is kept, with its headers; 1 MiB by default. It is held in memory.
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.answer_limit = bytes;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`SettingError::Name`] and [`SettingError::Duration`].
    pub fn build(self) -> Result<IdempotencyLayer, SettingError> {
        check_name("scope", &self.scope)?;
        for (what, given, (least, most)) in
            [("lease", self.lease, LEASES), ("time to keep", self.keep, KEEPS)]
        {
            if given < least || given > most {
                return Err(SettingError::Duration { what, given, least, most });
            }
        }
        Ok(IdempotencyLayer { settings: Arc::new(self) })
    }

    /// The claim of a request on its key.
    fn claim(&self, scope: String, key: String, fingerprint: String) -> Claim {
        Claim {
            scope: scope.into(),
            key: key.into(),
            token: uuid::Uuid::now_v7().simple().to_string().into(),
            fingerprint: fingerprint.into(),
            trace_id: Trace::current().map(|trace| trace.id().into()),
            lease: self.lease,
            keep: self.keep,
        }
    }

    fn body_too_large(&self) -> Refusal {
        let limit = self.request_limit;
        let message =
            format!("the body of a request with an idempotency key may have {limit} bytes: send less");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, code::BAD_REQUEST, message)
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("IdempotencyBuilder");
        shown.field("scope", &self.scope).field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("IdempotencyLayer");
        shown.field("scope", &self.settings.scope).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: Arc::clone(&self.settings) }
    }
}

/// What [`IdempotencyLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    settings: Arc<IdempotencyBuilder>,
}

impl<S, A, B> Service<Request<A>> for IdempotencyService<S>
where
    S: Service<Request<GuardBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GuardBody>;
    type Error = S::Error;
    type Future = Answering<Self::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (settings, mut inner) = (Arc::clone(&self.settings), exchange(&mut self.inner));
        let (parts, body) = request.into_parts();
        let key = rules::key(&parts.headers);
        let has_effects = rules::has_effects(&parts.method);
        let key = match key {
            Key::Given(key) if has_effects => key,
            Key::Absent if settings.required && has_effects => return refused(no_key()),
            Key::Bad if has_effects => return refused(bad_key()),
            _ => {
                let request = Request::from_parts(parts, boxed(body));
                return Box::pin(async move { Ok(inner.call(request).await?.map(boxed)) });
            }
        };
        let scope = keyed(&settings.scope, settings.subject.as_ref().and_then(|of| of(&parts)).as_deref());
        Box::pin(async move {
            // A client that sends its body slowly has no more time than a handler that answers slowly.
            let read = tokio::time::timeout(settings.lease, read(boxed(body), settings.request_limit));
            let body = match read.await {
                Ok(Ok(Read::Whole(body))) => body,
                Ok(Ok(Read::TooLong(_))) => return Ok(settings.body_too_large().response()),
                Ok(Err(_)) | Err(_) => return Ok(broken_body().response()),
            };
            let fingerprint = rules::fingerprint(&parts.method, &parts.uri, &body);
            let claim = settings.claim(scope, key, fingerprint);
            let mut request = Request::from_parts(parts, full(body));
            request.extensions_mut().insert(claim.clone());
            let store = Arc::clone(&settings.store);
            let execution = Execution { store, claim, answer_limit: settings.answer_limit };
            let work = execution.run(inner, request).in_current_span();
            let task = match Trace::current() {
                Some(trace) => tokio::spawn(trace.scope(work)),
                None => tokio::spawn(work),
            };
            // The task catches panics, so an error means that the runtime has ended.
            task.await.unwrap_or_else(|_| Ok(failed().response()))
        })
    }
}

fn refused<E>(refusal: Refusal) -> Answering<Response<GuardBody>, E>
where
    E: 'static,
{
    Box::pin(async move { Ok(refusal.response()) })
}

fn no_key() -> Refusal {
    let message = "the header X-Idempotency-Key is missing: send a new key with each new request";
    Refusal::new(StatusCode::BAD_REQUEST, code::BAD_REQUEST, message)
}

fn bad_key() -> Refusal {
    let limit = rules::LONGEST_KEY;
    let message =
        format!("the header X-Idempotency-Key must come once, with 1 to {limit} visible ASCII characters");
    Refusal::new(StatusCode::BAD_REQUEST, code::BAD_REQUEST, message)
}

fn broken_body() -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        code::BAD_REQUEST,
        "the body of the request did not come as a whole, or not in time",
    )
}
