//! The sink: a handler of batches of raw records. It owns the sessions and their limits.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use keylane::{
    BatchResults, Failure, GenericBatchHandler, HandlerError, Record, RecordTypes, Registration,
    handler::{BoxFuture, Context, FallbackCall},
};
use keylane_message::{Binding, Message, Route, Routes, Sink};
use rdkafka::error::KafkaError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    call::Call,
    config::{ConfigError, KafkaConfig},
    session::Session,
    verdict::SendError,
};

/// Sends records to Kafka. See the [crate] for an example.
#[must_use = "register it with KafkaSink::registration"]
#[derive(Debug)]
pub struct KafkaSink {
    routes: Routes,
    skip_unrouted: bool,
    pub(crate) producers: Producers,
}

impl KafkaSink {
    /// Creates a sink without routes. It does not connect, because Kafka may be away when a service starts.
    ///
    /// # Errors
    /// [`ConfigError`]: a setting is not valid.
    pub fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        config.check()?;
        for alone in [false, true] {
            // The client checks its properties when it creates a producer.
            Session::open(&config.client(alone)).map_err(|error| refused(&error))?;
        }
        Ok(Self { routes: Routes::default(), skip_unrouted: false, producers: Producers::new(config) })
    }

    /// Adds a route. A record takes the first route that accepts its type.
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
        let config = &self.producers.config;
        let (size, concurrency) = (config.batch_size, config.concurrency);
        // The sink gives up before this limit, which only guards against a defect.
        let timeout = config.patience * 2 + Duration::from_secs(10);
        let has_dead_letters = self.routes.has_dead_letters();
        let sink = Arc::new(self);
        let registration = Registration::generic_batch(id, types, size, Relay(Arc::clone(&sink)));
        let registration = registration.timeout(timeout).concurrency(concurrency);
        if has_dead_letters { registration.with_fallback_call(DeadLetters(sink)) } else { registration }
    }

    /// Whether to send a record. `None`: skip it.
    fn fate(&self, record: &Record) -> Option<Result<(), SendError>> {
        match self.routes.of(record) {
            Some(_) => Some(Ok(())),
            None if self.skip_unrouted => None,
            None => Some(Err(SendError::Unrouted { record_type: record.delivery.record_type.to_string() })),
        }
    }

    fn message<'a>(&'a self, record: &'a Record) -> Option<Message<'a>> {
        let route = self.routes.of(record)?;
        Some(route.message(record, &self.producers.config.source, Binding::Kafka))
    }
}

impl Sink for KafkaSink {
    fn route(self, route: Route) -> Self {
        self.route(route)
    }

    fn registration(self, id: impl Into<String>) -> Registration {
        self.registration(id)
    }
}

impl GenericBatchHandler for KafkaSink {
    async fn handle(&self, records: &[&Record]) -> BatchResults {
        Call::new(&self.producers, records, |record| self.fate(record), |record| self.message(record))
            .run()
            .await
    }
}

/// The sink as a handler.
struct Relay(Arc<KafkaSink>);

impl GenericBatchHandler for Relay {
    async fn handle(&self, records: &[&Record]) -> BatchResults {
        self.0.handle(records).await
    }
}

/// The sink as a fallback handler: a record that fails for good goes to the dead letters of its route.
struct DeadLetters(Arc<KafkaSink>);

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
        let (sink, records) = (&*self.0, [context.record()]);
        let source = &sink.producers.config.source;
        if let Some(kept) = sink.routes.keep_dead_letter(context, failure, source, Binding::Kafka).await {
            return kept;
        }
        let message = |record| sink.routes.dead_letter(record, failure, source, Binding::Kafka);
        if message(context.record()).is_none() {
            return Err(HandlerError::permanent("the record's route has no dead letters"));
        }
        let results = Call::new(&sink.producers, &records, |_| Some(Ok(())), message).run().await;
        results.into_iter().next().unwrap_or(Ok(()))
    }
}

/// Removes the value from the client's text, because the value can be a secret. The text has property, value
/// and permitted values.
fn refused(error: &KafkaError) -> ConfigError {
    ConfigError::Client(match error {
        KafkaError::ClientConfig(_, _, name, _) => {
            format!("{name} is unknown or has a value that it cannot have")
        }
        other => other.to_string(),
    })
}

/// The producers of a sink, and the state that its calls share.
#[derive(Debug)]
pub(crate) struct Producers {
    pub(crate) config: KafkaConfig,
    /// Created at the first use and after each end of a session.
    many: Mutex<Option<Arc<Session>>>,
    /// Sends each message in a separate request.
    alone: Mutex<Option<Arc<Session>>>,
    /// Permits of the queue, one per started KiB.
    room: Arc<Semaphore>,
    /// Whether no acknowledgement has come since a call gave up.
    away: AtomicBool,
    /// The permit of the one call that tries whether the brokers are back.
    probe: Semaphore,
}

impl Producers {
    fn new(config: KafkaConfig) -> Self {
        let room = Arc::new(Semaphore::new(config.queue_bytes / 1024));
        let (many, alone) = (Mutex::new(None), Mutex::new(None));
        Self { config, many, alone, room, away: AtomicBool::new(false), probe: Semaphore::new(1) }
    }

    /// The session in use, or a new one.
    pub(crate) fn session(&self, alone: bool) -> Result<Arc<Session>, KafkaError> {
        let place = if alone { &self.alone } else { &self.many };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = place.as_ref().filter(|session| !session.is_retired()) {
            return Ok(Arc::clone(session));
        }
        let session = Session::open(&self.config.client(alone))?;
        *place = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Waits until the queue has room for these many bytes.
    pub(crate) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let all = self.config.queue_bytes / 1024;
        let shares = (bytes / 1024 + 1).min(all);
        Arc::clone(&self.room).acquire_many_owned(u32::try_from(shares).ok()?).await.ok()
    }

    pub(crate) fn set_away(&self, away: bool) {
        if self.away.swap(away, Relaxed) != away {
            tracing::debug!(target: "keylane_kafka", away, "the brokers are away or back");
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Relaxed)
    }

    /// While the brokers are away, one call at a time tries them. All others get `None`.
    pub(crate) fn probe(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.probe.try_acquire().ok()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("retired", &self.is_retired()).finish()
    }
}
