//! The sink: a handler of batches of raw records.

use std::{sync::Arc, time::Duration};

use keylane::{
    BatchResults, Failure, HandlerError, Record, RecordTypes, Registration,
    handler::{BoxFuture, Context, FallbackCall, GenericBatchHandler},
};
use keylane_message::{Binding, Route, Routes, Sink};

use crate::{
    call::Call,
    config::{ConfigError, KafkaConfig},
    producers::Producers,
    session::Outgoing,
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
        Ok(Self { routes: Routes::default(), skip_unrouted: false, producers: Producers::new(config)? })
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

    fn message<'a>(&'a self, record: &'a Record) -> Option<Outgoing<'a>> {
        let route = self.routes.of(record)?;
        Some(route.message(record, &self.producers.config.source, Binding::Kafka).into())
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
        let call =
            Call::new(&self.producers, records, |record| self.fate(record), |record| self.message(record));
        let sent = call.run().await;
        let retry_after = self.producers.config.retry_after;
        sent.into_iter().map(|sent| sent.map_err(|error| error.told(retry_after))).collect()
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
        let message =
            |record| sink.routes.dead_letter(record, failure, source, Binding::Kafka).map(Outgoing::from);
        if message(context.record()).is_none() {
            return Err(HandlerError::permanent("the record's route has no dead letters"));
        }
        let sent = Call::new(&sink.producers, &records, |_| Some(Ok(())), message).run().await;
        let retry_after = sink.producers.config.retry_after;
        sent.into_iter().next().unwrap_or(Ok(())).map_err(|error| error.told(retry_after))
    }
}
