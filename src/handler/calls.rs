//! The object-safe forms of a handler, which the macros implement, and wrappers for the plain forms.

use std::{future::Future, marker::PhantomData, pin::Pin};

use super::{
    batch::DecodedBatch,
    context::{Context, States},
    error::{Failure, HandlerError},
    forms::{
        BatchHandler, BatchResults, FallbackHandler, GenericBatchHandler, GenericFallbackHandler,
        GenericHandler, Handler, TransactionalBatchHandler, TransactionalHandler,
    },
};
use crate::{database::Database, record::Record};

/// A boxed future, as the object-safe call traits return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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

/// A handler in the transaction of its completion, object-safe.
pub trait TransactionalCall<DB: Database>: Send + Sync + 'static {
    /// Handles the record of the context through `tx`.
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// A handler of several records in the transaction of their completions, object-safe.
pub trait TransactionalBatchCall<DB: Database>: Send + Sync + 'static {
    /// Handles the records through `tx`, in order: all or none.
    fn call<'a>(
        &'a self,
        records: &'a [&'a Record],
        states: &'a States,
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

pub(super) struct Typed<H>(pub(super) H);
pub(super) struct Generic<H>(pub(super) H);
pub(super) struct Batch<H>(pub(super) H);
pub(super) struct GenericBatch<H>(pub(super) H);
pub(super) struct InTransaction<DB, H>(H, PhantomData<fn() -> DB>);
pub(super) struct BatchInTransaction<DB, H>(H, PhantomData<fn() -> DB>);
/// Calls a single-record handler for one record after the other.
pub(super) struct Each<C>(pub(super) C);

impl<DB, H> InTransaction<DB, H> {
    pub(super) fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

impl<DB, H> BatchInTransaction<DB, H> {
    pub(super) fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

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

impl<H: GenericBatchHandler> BatchCall for GenericBatch<H> {
    fn call<'a>(&'a self, records: &'a [&'a Record], _: &'a States) -> BoxFuture<'a, BatchResults> {
        Box::pin(self.0.handle(records))
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

impl<DB: Database, H: TransactionalBatchHandler<DB>> TransactionalBatchCall<DB>
    for BatchInTransaction<DB, H>
{
    fn call<'a>(
        &'a self,
        records: &'a [&'a Record],
        _: &'a States,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let batch = DecodedBatch::<H::Event>::of(records);
            batch.undecodable.check()?;
            self.0.handle(batch.events, tx, &batch.deliveries).await
        })
    }
}

impl<DB: Database, C: TransactionalCall<DB>> TransactionalBatchCall<DB> for Each<C> {
    fn call<'a>(
        &'a self,
        records: &'a [&'a Record],
        states: &'a States,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            for record in records {
                self.0.call(Context::new(record, states), tx).await?;
            }
            Ok(())
        })
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
