//! Runs whose call is noted in the database before it begins: in partitions whose owners have crashed.

use std::{future::Future, sync::Arc};

use super::{
    attempt::Surroundings,
    intake::ERROR_PAUSE,
    lane::Run,
    together::{Together, fly},
};
use crate::{
    instance::InstanceId,
    partition::Partition,
    record::RecordId,
    rules::crashes::Care,
    store::{Store, StoreError},
    telemetry::Signal,
};

/// The record of a run by itself that is to be noted, with its partition.
pub(super) fn to_note(run: &Run) -> Option<(RecordId, Partition)> {
    let (item, _) = run.lanes.first()?.items.first()?;
    let delivery = &item.record.delivery;
    (item.care != Care::Usual).then_some((delivery.id, delivery.partition))
}

/// Notes the call, runs it, and takes the note back. A run that could not be noted is not tried.
pub(super) async fn fly_noted(
    together: Together,
    (record, partition): (RecordId, Partition),
    (store, me): (Arc<dyn Store>, InstanceId),
    around: Arc<Surroundings>,
) {
    if !tell(store.note_call(me, partition, record), &around).await {
        // What is not tried is ready again at once.
        return tokio::time::sleep(ERROR_PAUSE).await;
    }
    fly(together, Arc::clone(&around)).await;
    tell(store.end_call(record), &around).await;
}

/// Whether a call of the store succeeded; that it failed is told.
pub(super) async fn tell(call: impl Future<Output = Result<(), StoreError>>, around: &Surroundings) -> bool {
    let done = call.await;
    if let Err(error) = &done {
        around.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
    done.is_ok()
}
