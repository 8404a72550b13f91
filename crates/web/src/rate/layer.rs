//! The layer that limits the rate of requests.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Body;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{BucketStore, Limit, Taken, TrustedProxies, address, local::LocalBuckets};
use crate::{
    body::{BoxError, GuardBody, boxed},
    error::SettingError,
    refusal::{Refusal, code},
    service::{Answering, exchange},
    subject::{check_name, keyed},
};

/// For how long a store that has failed is not asked.
const PAUSE: Duration = Duration::from_secs(1);

/// What a limit does while its store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Limits with buckets of this process: each process then allows as much as all together did.
    #[default]
    Local,
    /// Allows every request.
    Allow,
    /// Refuses every request, with 503 and `C0001`.
    Refuse,
}

type SubjectOf = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Limits the rate of requests by token buckets: one bucket for all, or one per user or address.
///
/// A response has `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`; a refused one also `Retry-After`,
/// the status 429 and the code `A0500`.
#[derive(Clone)]
pub struct RateLimitLayer {
    limiter: Arc<Limiter>,
}

/// The settings of a [`RateLimitLayer`].
#[must_use = "call build"]
pub struct RateLimitBuilder {
    name: String,
    limit: Limit,
    subject: Option<SubjectOf>,
    store: Option<Arc<dyn BucketStore>>,
    when_away: WhenAway,
}

struct Limiter {
    settings: RateLimitBuilder,
    local: LocalBuckets,
    away: Away,
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RateLimitBuilder { name, limit, when_away, .. } = &self.limiter.settings;
        let mut shown = formatter.debug_struct("RateLimitLayer");
        shown.field("name", name).field("limit", limit).field("when_away", when_away).finish_non_exhaustive()
    }
}

impl RateLimitLayer {
    /// A limit of this name, with one bucket for all requests, in the memory of this process.
    pub fn builder(name: impl Into<String>, limit: Limit) -> RateLimitBuilder {
        let when_away = WhenAway::default();
        RateLimitBuilder { name: name.into(), limit, subject: None, store: None, when_away }
    }
}

impl RateLimitBuilder {
    /// Shares the buckets through a store, such as [`Redis`](crate::Redis).
    pub fn store(mut self, store: impl BucketStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// A bucket for each subject, such as the user of a request. Requests without one share the bucket of the name.
    /// Take what the service has verified: a subject that a client may choose is no limit.
    pub fn by(mut self, subject: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.subject = Some(Box::new(subject));
        self
    }

    /// A bucket for each address; of IPv6 for each network of 64 bits. `peer` is the address of the connection, such
    /// as `parts.extensions.get::<ConnectInfo<SocketAddr>>()` of axum. Behind trusted proxies it is that of their
    /// client.
    pub fn by_address(
        self,
        proxies: TrustedProxies,
        peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.by(move |parts| Some(address::subject(proxies.client(peer(parts)?, &parts.headers))))
    }

    /// The behaviour while the store does not answer; [`WhenAway::Local`] by default.
    pub fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`SettingError::Name`] and [`SettingError::Limit`].
    pub fn build(self) -> Result<RateLimitLayer, SettingError> {
        check_name("name of a limit", &self.name)?;
        self.limit.check()?;
        let (local, away) = (LocalBuckets::new(), Away::new());
        Ok(RateLimitLayer { limiter: Arc::new(Limiter { settings: self, local, away }) })
    }
}

impl fmt::Debug for RateLimitBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RateLimitBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitService { inner, limiter: Arc::clone(&self.limiter) }
    }
}

/// What [`RateLimitLayer`] makes of a service.
#[derive(Clone)]
pub struct RateLimitService<S> {
    inner: S,
    limiter: Arc<Limiter>,
}

impl<S: fmt::Debug> fmt::Debug for RateLimitService<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RateLimitService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, A, B> Service<Request<A>> for RateLimitService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    A: Send + 'static,
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
        let (limiter, mut inner) = (Arc::clone(&self.limiter), exchange(&mut self.inner));
        let (parts, body) = request.into_parts();
        let RateLimitBuilder { name, subject, .. } = &limiter.settings;
        let key = keyed(name, subject.as_ref().and_then(|subject| subject(&parts)).as_deref());
        let request = Request::from_parts(parts, body);
        Box::pin(async move {
            let (limit, taken) = (limiter.settings.limit, limiter.take(&key).await);
            let taken = match taken {
                Ok(taken) => taken,
                Err(refusal) => return Ok(refusal.response()),
            };
            if taken.as_ref().is_some_and(|taken| !taken.allowed) {
                return Ok(too_many(limit, taken).response());
            }
            let mut response = inner.call(request).await?.map(boxed);
            show(response.headers_mut(), limit, taken);
            Ok(response)
        })
    }
}

impl Limiter {
    /// Takes a token. `None` if the request is allowed without one.
    async fn take(&self, key: &str) -> Result<Option<Taken>, Refusal> {
        let RateLimitBuilder { store, limit, when_away, .. } = &self.settings;
        let Some(store) = store else { return Ok(Some(self.local.take(key, *limit))) };
        if !self.away.is_paused() {
            match store.take(key, *limit).await {
                Ok(taken) => {
                    self.away.answered();
                    return Ok(Some(taken));
                }
                Err(error) => self.away.failed(&self.settings.name, &error),
            }
        }
        match when_away {
            WhenAway::Local => Ok(Some(self.local.take(key, *limit))),
            WhenAway::Allow => Ok(None),
            WhenAway::Refuse => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                code::DEPENDENCY,
                "requests cannot be counted at the moment: try again in a second",
            )
            .header(header::RETRY_AFTER, HeaderValue::from_static("1"))),
        }
    }
}

/// Whether the store is away. While it is, one request per second asks the store, and the others do not wait.
struct Away {
    begun: Instant,
    /// The end of the pause, in milliseconds after `begun`; 0 if the store has answered.
    until: AtomicU64,
}

impl Away {
    fn new() -> Self {
        Self { begun: Instant::now(), until: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn is_paused(&self) -> bool {
        let (until, now) = (self.until.load(Relaxed), self.now());
        // The request that finds the pause over begins the next one, and asks the store.
        let next = now + PAUSE.as_millis() as u64;
        until > 0 && (now < until || self.until.compare_exchange(until, next, Relaxed, Relaxed).is_err())
    }

    fn failed(&self, name: &str, error: &crate::StoreError) {
        if self.until.swap(self.now() + PAUSE.as_millis() as u64, Relaxed) == 0 {
            let error = error as &dyn std::error::Error;
            tracing::warn!(target: "keylane_web", limit = name, error, "the store of a rate limit is away");
        }
    }

    fn answered(&self) {
        if self.until.load(Relaxed) > 0 && self.until.swap(0, Relaxed) > 0 {
            tracing::info!(target: "keylane_web", "the store of a rate limit answers again");
        }
    }
}

fn too_many(limit: Limit, taken: Option<Taken>) -> Refusal {
    let wait = taken.map_or(1, |taken| seconds(taken.until_next(limit))).max(1);
    let message = format!("too many requests: try again in {wait} s");
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, code::TOO_MANY_REQUESTS, message);
    let mut headers = HeaderMap::new();
    show(&mut headers, limit, taken);
    let shown = headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    shown
        .fold(refusal, |refusal, (name, value)| refusal.header(name, value))
        .header(header::RETRY_AFTER, wait.into())
}

/// Writes the rate-limit headers, unless a limit further inside has written them.
fn show(headers: &mut HeaderMap, limit: Limit, taken: Option<Taken>) {
    const NAMES: [HeaderName; 3] = [
        HeaderName::from_static("ratelimit-limit"),
        HeaderName::from_static("ratelimit-remaining"),
        HeaderName::from_static("ratelimit-reset"),
    ];
    let Some(taken) = taken.filter(|_| !headers.contains_key(&NAMES[0])) else { return };
    let values = [limit.capacity().into(), taken.remaining(), seconds(taken.until_full(limit))];
    headers.extend(NAMES.into_iter().zip(values.map(HeaderValue::from)));
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1_000) as u64
}
