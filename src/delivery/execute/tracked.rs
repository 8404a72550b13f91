//! Runs with a tracked call: the beginning of the call is written to the database first. Partitions whose
//! owners have crashed have such runs.

use std::{future::Future, sync::Arc};

use super::{
    context::ExecContext,
    runs::{Runs, Taken},
    task::one,
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

/// The first record of the run with its partition, if its call is to be tracked. Such a record runs by
/// itself.
pub(super) fn to_track(run: &Run) -> Option<(RecordId, Partition)> {
    let (item, _) = run.lanes.first()?.items.first()?;
    let delivery = &item.record.delivery;
    (item.care != Care::Usual).then_some((delivery.id, delivery.partition))
}

/// Writes the beginning of the call, runs it, and deletes that entry. If the write fails, the run stays
/// untried.
pub(super) async fn fly_tracked(
    runs: Arc<Runs>,
    (record, partition): (RecordId, Partition),
    (store, me): (Arc<dyn Store>, InstanceId),
) {
    if !tell(store.track_call(me, partition, record), &runs.context).await {
        // An untried run is ready again at once, so this task waits first.
        return tokio::time::sleep(ERROR_PAUSE).await;
    }
    drop(one(Taken::new(Arc::clone(&runs), 0)).await);
    tell(store.end_tracking(record), &runs.context).await;
}

/// Awaits a call of the store. Returns whether it succeeded; a failure becomes a signal.
pub(super) async fn tell(call: impl Future<Output = Result<(), StoreError>>, context: &ExecContext) -> bool {
    let done = call.await;
    if let Err(error) = &done {
        context.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
    done.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{sync::mpsc::unbounded_channel, time::Instant};

    use super::*;
    use crate::{
        delivery::{fixtures, outcome::Outcome},
        memory::{Fault, MemoryPool},
    };

    #[tokio::test(start_paused = true)]
    async fn without_the_entry_of_its_beginning_a_call_is_not_made() {
        for (faults, called) in [(0, 1), (1, 0)] {
            let (pool, calls) = (MemoryPool::new(), Arc::new(AtomicUsize::new(0)));
            pool.fail_next("track call", faults, Fault::NotApplied);
            let (ownership, count) = (fixtures::owning_all(), Arc::clone(&calls));
            let registry = fixtures::registry(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            let (done, mut reports) = unbounded_channel();
            let entry = Arc::clone(registry.entry("h", "t").unwrap());
            let context = Arc::new(fixtures::context(&ownership));
            let (mut runs, of) = (Runs::new(context, done), (1, Partition::of("a")));
            runs.push(Run::new(entry, fixtures::lanes(&ownership, 1)), None, 1);
            let (writer, began) = ((fixtures::store(&pool), InstanceId::generate()), Instant::now());
            fly_tracked(Arc::new(runs), of, writer).await;
            assert_eq!(calls.load(Ordering::Relaxed), called);
            let untried = matches!(reports.try_recv().unwrap().runs[0].lanes[0].items[0].1, Outcome::Untried);
            assert_eq!((untried, began.elapsed() >= ERROR_PAUSE), (called == 0, called == 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_call_of_a_suspect_is_tracked() {
        let ownership = fixtures::owning_all();
        let tracked = |care| {
            let mut run = fixtures::run(&ownership, 1);
            run.lanes[0].items[0].0.care = care;
            to_track(&run)
        };
        assert_eq!(tracked(Care::Usual), None);
        let found = Some((1, Partition::of("a")));
        assert_eq!((tracked(Care::Tracked), tracked(Care::Alone)), (found, found));
    }
}
