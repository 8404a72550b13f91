//! Handlers in their object-safe forms, which read payloads themselves: their decoders and upcasts may panic.

use keylane::{
    BatchResults, Delivery, FallbackHandler, Handler, HandlerError, OutboxEvent, Record, Registration,
    TransactionalHandler,
    handler::{
        BatchCall, BoxFuture, Call, Context, DecodedBatch, Failure, FallbackCall, RecordTypes, States,
        TransactionalBatchCall, TransactionalBatchHandler, TransactionalCall,
    },
    memory::{Memory, MemoryConnection},
};
use keylane_checker::CallKind;

use crate::{
    handlers::Act,
    plan::{Form, HandlerPlan},
};

/// A handler that reads payloads itself.
struct Reads<E>(Act<E>);

/// The handler of a plan, and its fallback.
pub(crate) fn registrations<E: OutboxEvent>(
    plan: &HandlerPlan,
    act: impl Fn(CallKind) -> Act<E>,
) -> (Registration, Registration) {
    let (id, takes, act) = (plan.id.as_str(), RecordTypes::event::<E>(), |kind| Reads(act(kind)));
    let batches = CallKind::TransactionalBatch;
    let one = match plan.form {
        Form::Single => Registration::single(id, takes, act(CallKind::Single)),
        Form::Batch(size) => Registration::batch_call(id, takes, size, false, act(CallKind::Batch)),
        Form::MixedBatch(size) => Registration::batch_call(id, takes, size, true, act(CallKind::Batch)),
        Form::Transactional => {
            Registration::transactional_call::<Memory>(id, takes, act(CallKind::Transactional))
        }
        Form::TransactionalBatch(size) => {
            Registration::transactional_batch_call::<Memory>(id, takes, size, false, act(batches))
        }
        Form::TransactionalMixedBatch(size) => {
            Registration::transactional_batch_call::<Memory>(id, takes, size, true, act(batches))
        }
    };
    (one, Registration::fallback_call(Some(id.to_owned()), act(CallKind::Fallback)))
}

impl<E: OutboxEvent> Reads<E> {
    fn one(&self, context: Context<'_>) -> Result<E, HandlerError> {
        let deliveries = [context.delivery()];
        self.0.read(&deliveries, || context.event()).inspect_err(|_| self.0.cannot_read(&deliveries))
    }

    fn several<'a>(&self, records: &[&'a Record]) -> DecodedBatch<'a, E> {
        let deliveries: Vec<&Delivery> = records.iter().map(|record| &record.delivery).collect();
        self.0.read(&deliveries, || DecodedBatch::of(records))
    }
}

impl<E: OutboxEvent> Call for Reads<E> {
    fn call<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { Handler::handle(&self.0, self.one(context)?, context.delivery()).await })
    }
}

impl<E: OutboxEvent> BatchCall for Reads<E> {
    fn call<'a>(&'a self, records: &'a [&'a Record], _: &'a States) -> BoxFuture<'a, BatchResults> {
        Box::pin(async move {
            let batch = self.several(records);
            let count = batch.events.len();
            let unread = records.get(count).map(|record| &record.delivery);
            let results = self.0.work(&batch.deliveries, unread).await;
            batch.undecodable.close(results, count)
        })
    }
}

impl<E: OutboxEvent> TransactionalCall<Memory> for Reads<E> {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        tx: &'a mut MemoryConnection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let event = self.one(context)?;
            TransactionalHandler::handle(&self.0, event, tx, context.delivery()).await
        })
    }
}

impl<E: OutboxEvent> TransactionalBatchCall<Memory> for Reads<E> {
    fn call<'a>(
        &'a self,
        records: &'a [&'a Record],
        _: &'a States,
        tx: &'a mut MemoryConnection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let batch = self.several(records);
            if batch.events.len() < records.len() {
                let all: Vec<&Delivery> = records.iter().map(|record| &record.delivery).collect();
                self.0.cannot_read(&all);
            }
            batch.undecodable.check()?;
            TransactionalBatchHandler::handle(&self.0, batch.events, tx, &batch.deliveries).await
        })
    }
}

impl<E: OutboxEvent> FallbackCall for Reads<E> {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { FallbackHandler::handle(&self.0, self.one(context)?, failure).await })
    }
}
