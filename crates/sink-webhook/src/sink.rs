//! The sink: a handler of raw records that sends one request per record.

use std::{sync::Arc, time::Duration};

use keylane::{
    Failure, GenericHandler, HandlerError, Record, RecordTypes, Registration,
    handler::{BoxFuture, Context, FallbackCall},
};
use keylane_message::{Binding, Message, Route, Routes, Sink};
use tokio::time::timeout;

use crate::{
    away::{Admission, Endpoints},
    client::Client,
    config::{ConfigError, WebhookConfig},
    request::{endpoint, request},
    verdict::{SendError, Verdict, verdict},
};

/// The shortest pause for an endpoint that is away.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Sends records to HTTP endpoints. See the [crate] for an example.
#[must_use = "register it with WebhookSink::registration"]
pub struct WebhookSink {
    routes: Routes,
    skip_unrouted: bool,
    sender: Sender,
}

/// The debug form has no URLs, because they can be secrets.
impl std::fmt::Debug for WebhookSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSink")
            .field("routes", &self.routes.count())
            .field("config", &self.sender.config)
            .finish_non_exhaustive()
    }
}

impl WebhookSink {
    /// Creates a sink without routes. It does not connect, because an endpoint may be away when a service
    /// starts.
    ///
    /// # Errors
    /// [`ConfigError`]: a setting is not valid.
    pub fn new(config: WebhookConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let sender = Sender { client: Client::new(&config)?, config, endpoints: Endpoints::default() };
        Ok(Self { routes: Routes::default(), skip_unrouted: false, sender })
    }

    /// Adds a route, whose target is a URL. A record takes the first route that accepts its type.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.add(route);
        self
    }

    /// Takes records of all types, and completes records without a route unsent. By default the outbox writes
    /// records for the sink only for the types of its routes, and a record without a route fails.
    pub fn skip_unrouted(mut self) -> Self {
        self.skip_unrouted = true;
        self
    }

    /// The sink as a handler, with the limits of its settings. It takes the types that its routes name. It
    /// takes all types if a route names none, or after [`skip_unrouted`](Self::skip_unrouted). If a route has
    /// dead letters, they are the handler's fallback.
    pub fn registration(self, id: impl Into<String>) -> Registration {
        let types = if self.skip_unrouted { RecordTypes::all() } else { self.routes.record_types() };
        let config = &self.sender.config;
        // The sink gives up before this limit, which only guards against a defect.
        let (timeout, concurrency) = (config.timeout * 2 + Duration::from_secs(10), config.concurrency);
        let has_dead_letters = self.routes.has_dead_letters();
        let sink = Arc::new(self);
        let registration = Registration::generic(id, types, Relay(Arc::clone(&sink)));
        let registration = registration.timeout(timeout).concurrency(concurrency);
        if has_dead_letters { registration.with_fallback_call(DeadLetters(sink)) } else { registration }
    }
}

impl Sink for WebhookSink {
    fn route(self, route: Route) -> Self {
        self.route(route)
    }

    fn registration(self, id: impl Into<String>) -> Registration {
        self.registration(id)
    }
}

impl GenericHandler for WebhookSink {
    async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
        match self.routes.of(record) {
            Some(route) => {
                let message = route.message(record, &self.sender.config.source, Binding::Http);
                self.sender.deliver(record, message).await
            }
            None if self.skip_unrouted => Ok(()),
            None => {
                let record_type = record.delivery.record_type.to_string();
                Err(SendError::Unrouted { record_type }.told(Duration::ZERO))
            }
        }
    }
}

/// The sink as a handler.
struct Relay(Arc<WebhookSink>);

impl GenericHandler for Relay {
    async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
        self.0.handle(record).await
    }
}

/// The sink as a fallback handler: a record that fails for good goes to the dead letters of its route.
struct DeadLetters(Arc<WebhookSink>);

impl FallbackCall for DeadLetters {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.take(context, failure))
    }
}

impl DeadLetters {
    async fn take(&self, context: Context<'_>, failure: &Failure) -> Result<(), HandlerError> {
        let WebhookSink { routes, sender, .. } = &*self.0;
        let (record, source) = (context.record(), &sender.config.source);
        if let Some(kept) = routes.keep_dead_letter(context, failure, source, Binding::Http).await {
            return kept;
        }
        let letter = routes.dead_letter(record, failure, source, Binding::Http);
        let letter =
            letter.ok_or_else(|| HandlerError::permanent("the record's route has no dead letters"))?;
        sender.deliver(record, letter).await
    }
}

/// The state that the calls of a sink share.
struct Sender {
    config: WebhookConfig,
    client: Client,
    endpoints: Endpoints,
}

impl Sender {
    /// Sends a message unless its endpoint is away.
    async fn deliver(&self, record: &Record, message: Message<'_>) -> Result<(), HandlerError> {
        let rejected = |error: SendError| error.told(Duration::ZERO);
        let (uri, endpoint) = endpoint(&message.target, &self.config).map_err(rejected)?;
        let request = request(uri, message, record, &self.config).map_err(rejected)?;
        let _trial = match self.endpoints.admit(&endpoint, self.config.retry_after) {
            Admission::Go(trial) => trial,
            Admission::Wait(pause) => return Err(SendError::Away { endpoint }.told(pause)),
        };
        let limit = self.config.timeout;
        let answer = timeout(limit, self.client.send(&endpoint, request)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(SendError::TimedOut { endpoint: endpoint.clone(), limit }));
        let (asked, error) = match answer {
            Ok(answer) if verdict(answer.status) == Verdict::Delivered => {
                self.endpoints.set_back(&endpoint);
                return Ok(());
            }
            Ok(answer) => {
                let (status, body) = (answer.status, answer.body);
                (answer.pause, SendError::Status { endpoint: endpoint.clone(), status, body })
            }
            Err(error) => (None, error),
        };
        let pause = asked.map(|asked| asked.clamp(LEAST_PAUSE, self.config.max_retry_after));
        let pause = pause.unwrap_or(self.config.retry_after);
        match error.verdict() {
            Verdict::Away => self.endpoints.set_away(&endpoint, pause),
            _ => self.endpoints.set_back(&endpoint),
        }
        Err(error.told(pause))
    }
}
