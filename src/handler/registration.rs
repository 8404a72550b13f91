//! A registration: one handler or fallback handler with everything the outbox must know of it.

use std::{
    any::{Any, TypeId, type_name},
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use super::{
    batch::DecodedBatch,
    context::{Context, States},
    error::{Failure, HandlerError},
    forms::{
        BatchHandler, BatchResults, FallbackHandler, GenericFallbackHandler, GenericHandler, Handler,
        TransactionalHandler,
    },
};
use crate::{
    database::Database,
    record::{AfterFailure, OutboxEvent, Record},
    rules::retry::RetryPolicy,
};

/// A boxed future, as the object-safe call traits return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the macros generate: a type that declares its handler.
pub trait Declare {
    /// The handler with its options.
    fn declare() -> Registration;
}

/// A handler of single records, object-safe.
pub trait Call: Send + Sync + 'static {
    /// Handles the record of the context.
    fn call<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// A handler of several records, object-safe.
pub trait BatchCall: Send + Sync + 'static {
    /// Handles the records, in order; see [`BatchResults`].
    fn call<'a>(&'a self, records: &'a [&'a Record], states: &'a States) -> BoxFuture<'a, BatchResults>;
}

/// A handler inside the transaction of its completion, object-safe.
pub trait TransactionalCall<DB: Database>: Send + Sync + 'static {
    /// Handles the record of the context through `tx`.
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// A fallback handler, object-safe.
pub trait FallbackCall: Send + Sync + 'static {
    /// Takes over the record of the context.
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// Which record types a handler takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takes {
    /// `None` for every record type.
    pub(crate) record_types: Option<Vec<String>>,
    /// The Rust type that the handler decodes them into, if it is one.
    pub(crate) event: Option<&'static str>,
}

impl Takes {
    /// The record type of one event.
    pub fn event<E: OutboxEvent>() -> Self {
        Self { record_types: Some(vec![E::RECORD_TYPE.to_owned()]), event: Some(type_name::<E>()) }
    }

    /// These record types.
    pub fn types<T: Into<String>>(record_types: impl IntoIterator<Item = T>) -> Self {
        Self { record_types: Some(record_types.into_iter().map(Into::into).collect()), event: None }
    }

    /// Every record type.
    pub fn every() -> Self {
        Self { record_types: None, event: None }
    }
}

/// One handler or fallback handler with its options.
#[must_use = "give it to the builder with .handlers(…)"]
pub struct Registration {
    pub(crate) kind: Kind,
    pub(crate) needs: Vec<(TypeId, &'static str)>,
    pub(crate) options: Options,
}

pub(crate) enum Kind {
    Handler { id: String, takes: Takes, form: DeclaredForm },
    Fallback { of: Option<String>, call: Arc<dyn FallbackCall> },
}

/// A handler's form before the database type is known.
pub(crate) enum DeclaredForm {
    Single(Arc<dyn Call>),
    Batch {
        call: Arc<dyn BatchCall>,
        size: usize,
        mixed: bool,
    },
    /// Holds an `Arc<dyn TransactionalCall<DB>>`.
    Transactional {
        call: Box<dyn Any + Send + Sync>,
        database: &'static str,
    },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stop_on_first_failure: Option<bool>,
    pub(crate) after_failure: Option<AfterFailure>,
}

impl Registration {
    fn handler(id: impl Into<String>, takes: Takes, form: DeclaredForm) -> Self {
        Self {
            kind: Kind::Handler { id: id.into(), takes, form },
            needs: Vec::new(),
            options: Options::default(),
        }
    }

    /// A handler of one event type.
    pub fn typed<H: Handler>(id: impl Into<String>, handler: H) -> Self {
        Self::single(id, Takes::event::<H::Event>(), Typed(handler))
    }

    /// A handler of raw records.
    pub fn generic<H: GenericHandler>(id: impl Into<String>, takes: Takes, handler: H) -> Self {
        Self::single(id, takes, Generic(handler))
    }

    /// A handler of up to `size` records at once: a contiguous run of one lane.
    pub fn batch<H: BatchHandler>(id: impl Into<String>, size: usize, handler: H) -> Self {
        Self::many(id, Takes::event::<H::Event>(), size, false, Batch(handler))
    }

    /// A handler of up to `size` records at once, from several lanes, each lane's in order.
    pub fn mixed_batch<H: BatchHandler>(id: impl Into<String>, size: usize, handler: H) -> Self {
        Self::many(id, Takes::event::<H::Event>(), size, true, Batch(handler))
    }

    /// A handler inside the transaction of its completion.
    pub fn transactional<DB: Database, H: TransactionalHandler<DB>>(
        id: impl Into<String>,
        handler: H,
    ) -> Self {
        let call = InTransaction::<DB, H>(handler, PhantomData);
        Self::within(id, Takes::event::<H::Event>(), call)
    }

    /// The fallback handler of the handler `of`.
    pub fn fallback<H: FallbackHandler>(of: impl Into<String>, handler: H) -> Self {
        Self::fallback_call(Some(of.into()), Typed(handler))
    }

    /// The fallback handler of all handlers that have none of their own.
    pub fn default_fallback<H: GenericFallbackHandler>(handler: H) -> Self {
        Self::fallback_call(None, Generic(handler))
    }

    /// A handler in its object-safe form.
    pub fn single(id: impl Into<String>, takes: Takes, call: impl Call) -> Self {
        Self::handler(id, takes, DeclaredForm::Single(Arc::new(call)))
    }

    /// A batch handler in its object-safe form. `mixed`: records of several lanes in one call.
    pub fn many(id: impl Into<String>, takes: Takes, size: usize, mixed: bool, call: impl BatchCall) -> Self {
        Self::handler(id, takes, DeclaredForm::Batch { call: Arc::new(call), size, mixed })
    }

    /// A transactional handler in its object-safe form.
    pub fn within<DB: Database>(
        id: impl Into<String>,
        takes: Takes,
        call: impl TransactionalCall<DB>,
    ) -> Self {
        let call: Arc<dyn TransactionalCall<DB>> = Arc::new(call);
        Self::handler(id, takes, DeclaredForm::Transactional { call: Box::new(call), database: DB::NAME })
    }

    /// A fallback handler in its object-safe form; `of` is a handler id, or `None` for the default.
    pub fn fallback_call(of: Option<String>, call: impl FallbackCall) -> Self {
        Self {
            kind: Kind::Fallback { of, call: Arc::new(call) },
            needs: Vec::new(),
            options: Options::default(),
        }
    }

    /// Declares that the handler needs a shared value: without it, `build` is an error.
    pub fn needs<T: Clone + Send + Sync + 'static>(mut self) -> Self {
        self.needs.push((TypeId::of::<T>(), type_name::<T>()));
        self
    }

    /// Sets this handler's retry policy instead of the outbox's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    /// Sets how long one call may take, instead of the outbox's setting.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sets whether a failing record stops the later ones of its lane.
    pub fn stop_on_first_failure(mut self, stop: bool) -> Self {
        self.options.stop_on_first_failure = Some(stop);
        self
    }

    /// Sets what becomes of the lane when a record has failed for good.
    pub fn after_failure(mut self, lane: AfterFailure) -> Self {
        self.options.after_failure = Some(lane);
        self
    }
}

struct Typed<H>(H);
struct Generic<H>(H);
struct Batch<H>(H);
struct InTransaction<DB, H>(H, PhantomData<fn() -> DB>);

impl<H: Handler> Call for Typed<H> {
    fn call<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { self.0.handle(context.event()?, context.delivery()).await })
    }
}

impl<H: GenericHandler> Call for Generic<H> {
    fn call<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.0.handle(context.record()))
    }
}

impl<H: BatchHandler> BatchCall for Batch<H> {
    fn call<'a>(&'a self, records: &'a [&'a Record], _: &'a States) -> BoxFuture<'a, BatchResults> {
        Box::pin(async move {
            let batch = DecodedBatch::<H::Event>::of(records);
            let count = batch.events.len();
            let results = match count {
                0 => Vec::new(),
                _ => self.0.handle(batch.events, &batch.deliveries).await,
            };
            batch.undecodable.close(results, count)
        })
    }
}

impl<DB: Database, H: TransactionalHandler<DB>> TransactionalCall<DB> for InTransaction<DB, H> {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { self.0.handle(context.event()?, tx, context.delivery()).await })
    }
}

impl<H: FallbackHandler> FallbackCall for Typed<H> {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { self.0.handle(context.event()?, failure).await })
    }
}

impl<H: GenericFallbackHandler> FallbackCall for Generic<H> {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.0.handle(context.record(), failure))
    }
}
