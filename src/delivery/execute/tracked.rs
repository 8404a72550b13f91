//! Runs whose call is tracked in the database: written down before it begins: in partitions whose owners have crashed.

use std::{future::Future, sync::Arc};

use super::{
    context::ExecContext,
    task::{Together, fly},
};
use crate::{
    delivery::{ERROR_PAUSE, outcome::Run},
    instance::InstanceId,
    partition::Partition,
    record::RecordId,
    rules::crashes::Care,
    store::{Store, StoreError},
    telemetry::Signal,
};

/// The record of a run by itself that is to be tracked, with its partition.
pub(super) fn to_track(run: &Run) -> Option<(RecordId, Partition)> {
    let (item, _) = run.lanes.first()?.items.first()?;
    let delivery = &item.record.delivery;
    (item.care != Care::Usual).then_some((delivery.id, delivery.partition))
}

/// Tracks the call in the database, runs it, and ends the track. A run that could not be tracked is not tried.
pub(super) async fn fly_tracked(
    together: Together,
    (record, partition): (RecordId, Partition),
    (store, me): (Arc<dyn Store>, InstanceId),
    context: Arc<ExecContext>,
) {
    if !tell(store.track_call(me, partition, record), &context).await {
        // What is not tried is ready again at once.
        return tokio::time::sleep(ERROR_PAUSE).await;
    }
    fly(together, Arc::clone(&context)).await;
    tell(store.end_tracking(record), &context).await;
}

/// Whether a call of the store succeeded; that it failed is told.
pub(super) async fn tell(call: impl Future<Output = Result<(), StoreError>>, context: &ExecContext) -> bool {
    let done = call.await;
    if let Err(error) = &done {
        context.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
    done.is_ok()
}
