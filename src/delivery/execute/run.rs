//! A run: passes the records of one lane (or of several, for mixed batches) to their handler.

use std::sync::Arc;

use super::{
    attempt::{decide, end_expired},
    call::{handle, handle_batch},
    context::ExecContext,
    flight::Flight,
    transactional::run_in_transactions,
};
use crate::{
    handler::{BatchCall, Call, Entry, Form, HandlerError},
    record::Record,
};

/// Runs until the last record, or until the lane may not go on.
pub(super) async fn run(flight: &mut Flight<'_>, entry: &Entry, context: &ExecContext) {
    match &entry.form {
        Form::Single(call) => {
            for lane in 0..flight.lanes() {
                run_lane(flight, entry, lane, &**call, context).await;
            }
        }
        Form::Batch { call, .. } => Box::pin(run_batch(flight, entry, &**call, context)).await,
        Form::Transactional { call, .. } => Box::pin(run_in_transactions(flight, entry, call, context)).await,
    }
}

async fn run_lane(
    flight: &mut Flight<'_>,
    entry: &Entry,
    lane: usize,
    call: &dyn Call,
    context: &ExecContext,
) {
    while let Some(item) = flight.next(lane) {
        // The last check of the lease, directly before the call.
        let Some(started) = item.permit.starts_at() else { return flight.stop(lane) };
        let (record, has_expired) = (Arc::clone(&item.record), item.has_expired(started));
        flight.begin(lane, 1, started);
        let result = match has_expired {
            true => Err(HandlerError::expired()),
            false => flight.wait(handle(call, &record, entry, context)).await.flatten(),
        };
        let outcome = decide(flight, lane, entry, &record, result, context).await;
        flight.end(lane, outcome);
    }
}

async fn run_batch(flight: &mut Flight<'_>, entry: &Entry, call: &dyn BatchCall, context: &ExecContext) {
    let lanes = 0..flight.lanes();
    for lane in lanes.clone() {
        while end_expired(flight, entry, lane, context).await {}
    }
    let may_start = |flight: &Flight<'_>, lane| flight.rest(lane).all(|item| item.permit.may_start());
    if !lanes.clone().all(|lane| may_start(flight, lane)) {
        return lanes.for_each(|lane| flight.stop(lane));
    }
    let started = context.clock.now();
    let mut records: Vec<Arc<Record>> = Vec::new();
    let mut counts = Vec::with_capacity(lanes.len());
    for lane in lanes.clone() {
        let before = records.len();
        if flight.next(lane).is_some() {
            // Records behind an expired one wait until it has ended: they belong to the next run.
            let fresh = flight.rest(lane).take_while(|item| !item.has_expired(started));
            records.extend(fresh.map(|item| Arc::clone(&item.record)));
        }
        counts.push(records.len() - before);
        flight.begin(lane, records.len() - before, started);
    }
    if records.is_empty() {
        return lanes.for_each(|lane| flight.stop(lane));
    }
    let given: Vec<&Record> = records.iter().map(|record| &**record).collect();
    let mut results = flight.wait(handle_batch(call, &given, entry, context)).await.into_iter();
    let mut records = records.iter();
    for (lane, count) in lanes.zip(counts) {
        let mut failed = false;
        for record in records.by_ref().take(count) {
            // The prefix rule: once a lane may not go on, its later results do not count. The same holds
            // after a failure that lets the lane go on, because a handler must stop there.
            let result = results.next().filter(|_| !failed && flight.next(lane).is_some());
            let Some(result) = result else {
                flight.stop(lane);
                continue;
            };
            failed = result.is_err() && entry.lane_rules.stop_on_first_failure;
            let outcome = decide(flight, lane, entry, record, result, context).await;
            flight.end(lane, outcome);
        }
        if flight.rest(lane).next().is_some() {
            flight.stop(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{
        delivery::{
            fixtures,
            outcome::{LaneRun, Outcome, Run},
            work::LaneId,
        },
        handler::{BatchResults, BoxFuture, RecordTypes, Registration, States},
        ownership::Ownership,
        partition::{Partition, PartitionSet},
        record::{Change, OnFailure},
    };

    /// Runs three records of a key. `meanwhile` happens during each call. Returns how many calls there were,
    /// and how many records are untried.
    async fn calls_after(meanwhile: impl Fn(&Ownership) + Send + Sync + 'static) -> (usize, usize) {
        let (ownership, called) = (fixtures::owning_all(), Arc::new(Mutex::new(0)));
        let (owner, count) = (ownership.clone(), Arc::clone(&called));
        let registry = fixtures::registry(move |_| {
            *count.lock().unwrap() += 1;
            meanwhile(&owner);
            Ok(())
        });
        let done = unbounded_channel().0;
        let mut three = fixtures::run(&ownership, 3);
        let mut flight = Flight::new(&mut three, None, &done);
        run(&mut flight, registry.entry("h", "t").unwrap(), &fixtures::context(&ownership)).await;
        let untried = three.lanes[0].items.iter().filter(|item| matches!(item.1, Outcome::Untried)).count();
        (*called.lock().unwrap(), untried)
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_checks_the_lease_and_the_owner() {
        assert_eq!(calls_after(|_| {}).await, (3, 0));
        assert_eq!(calls_after(Ownership::lose).await, (1, 2), "the lease is gone");
        let partition = Partition::of("a");
        let drained = calls_after(move |owner| owner.drain(PartitionSet::from_iter([partition])));
        assert_eq!(drained.await, (1, 2), "it is to be handed over");
        let moved = calls_after(move |owner| {
            owner.grant(&[(partition, crate::instance::Generation(9))]);
        });
        assert_eq!(moved.await, (1, 2), "it was taken and came back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_expired_fails_at_its_place_without_a_call() {
        let (ownership, called) = (fixtures::owning_all(), Arc::new(Mutex::new(Vec::new())));
        let ids = Arc::clone(&called);
        let registry = fixtures::registry(move |record| {
            ids.lock().unwrap().push(record.delivery.id);
            Ok(())
        });
        let (done, context) = (unbounded_channel().0, fixtures::context(&ownership));
        let mut four = fixtures::run(&ownership, 4);
        for (at, left) in [(1, 1), (2, 0)] {
            four.lanes[0].items[at].0.expires =
                Some(context.clock.now() + std::time::Duration::from_secs(left));
        }
        let mut flight = Flight::new(&mut four, None, &done);
        run(&mut flight, registry.entry("h", "t").unwrap(), &context).await;
        let [(_, one), (_, two), (_, three), (_, four)] = &four.lanes[0].items[..] else { panic!() };
        assert!(matches!((one, two, four), (Outcome::Completed, Outcome::Completed, Outcome::Untried)));
        let Outcome::Changed(change) = three else { panic!("{three:?}") };
        assert!(matches!(&**change, Change::Fail { counted: false, .. }), "{change:?}");
        assert_eq!(*called.lock().unwrap(), [1, 2]);
    }

    /// A closure as a batch handler.
    struct Act<F>(F);

    impl<F: Fn(&[i64]) -> BatchResults + Send + Sync + 'static> BatchCall for Act<F> {
        fn call<'a>(&'a self, records: &'a [&'a Record], _: &'a States) -> BoxFuture<'a, BatchResults> {
            let ids: Vec<i64> = records.iter().map(|record| record.delivery.id).collect();
            Box::pin(async move { (self.0)(&ids) })
        }
    }

    /// One run of records 1 and 2 of a lane, 3 and 4 of another, and 5 of a third. The records in `expired` have
    /// expired.
    /// Returns the ids of the call and the outcomes as words.
    async fn batch(
        expired: &[i64],
        results: impl Fn(&[i64]) -> BatchResults + Send + Sync + 'static,
    ) -> (Vec<i64>, Vec<&'static str>) {
        batch_that(OnFailure::Block, expired, results).await
    }

    /// As `batch`. `after`: what becomes of a lane after a failure for good.
    async fn batch_that(
        after: OnFailure,
        expired: &[i64],
        results: impl Fn(&[i64]) -> BatchResults + Send + Sync + 'static,
    ) -> (Vec<i64>, Vec<&'static str>) {
        let (ownership, called) = (fixtures::owning_all(), Arc::new(Mutex::new(Vec::new())));
        let given = Arc::clone(&called);
        let act = Act(move |ids: &[i64]| {
            given.lock().unwrap().extend(ids);
            results(ids)
        });
        let handler = Registration::batch_call("h", RecordTypes::all(), 4, true, act);
        let registry = fixtures::registry_of(handler.on_failure(after));
        let (done, context) = (unbounded_channel().0, fixtures::context(&ownership));
        let lanes = [(0, "a", &[1, 2][..]), (1, "b", &[3, 4]), (2, "c", &[5])].map(|(lane, key, ids)| {
            let items = ids.iter().map(|id| {
                let id = *id;
                let mut item = fixtures::item(&ownership, fixtures::record(id, key));
                item.expires = expired.contains(&id).then(|| context.clock.now());
                item
            });
            LaneRun::new(LaneId(lane), items)
        });
        let mut batch = Run::new(fixtures::entry(), lanes.into_iter().collect());
        let mut flight = Flight::new(&mut batch, None, &done);
        run(&mut flight, registry.entry("h", "t").unwrap(), &context).await;
        let words = batch.lanes.iter().flat_map(|lane| &lane.items).map(|(_, outcome)| match outcome {
            Outcome::Completed => "completed",
            Outcome::Changed(change) if matches!(**change, Change::Retry { .. }) => "retry",
            Outcome::Changed(change) if matches!(**change, Change::Fail { .. }) => "failed",
            Outcome::Untried => "untried",
            _ => "other",
        });
        let called = called.lock().unwrap().clone();
        (called, words.collect())
    }

    /// The handler stops at its first failure in each lane, and the lanes do not depend on each other.
    #[tokio::test(start_paused = true)]
    async fn each_record_of_a_batch_has_its_result_up_to_the_first_failure_of_its_lane() {
        let failing = |bad: i64| {
            move |ids: &[i64]| {
                let result = |id: &i64| if *id == bad { Err(HandlerError::new("no")) } else { Ok(()) };
                ids.iter().map(result).collect()
            }
        };
        assert_eq!(batch(&[], failing(0)).await, (vec![1, 2, 3, 4, 5], vec!["completed"; 5]));
        let [done, retry, untried] = ["completed", "retry", "untried"];
        assert_eq!(batch(&[], failing(1)).await.1, [retry, untried, done, done, done]);
        assert_eq!(batch(&[], failing(4)).await.1, [done, done, done, retry, done]);
        assert_eq!(batch(&[], failing(5)).await.1, [done, done, done, done, retry]);
    }

    /// Its lane goes on, although the handler must stop there.
    #[tokio::test(start_paused = true)]
    async fn no_result_counts_behind_a_failure_for_good() {
        let results = |ids: &[i64]| {
            let result = |id: &i64| if *id == 1 { Err(HandlerError::permanent("no")) } else { Ok(()) };
            ids.iter().map(result).collect::<BatchResults>()
        };
        let [done, failed, untried] = ["completed", "failed", "untried"];
        assert_eq!(
            batch_that(OnFailure::Continue, &[], results).await.1,
            [failed, untried, done, done, done]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_without_results_fails_its_first_record() {
        let untried = ["retry", "untried", "untried", "untried", "untried"];
        assert_eq!(batch(&[], |_| Vec::new()).await.1, untried);
        assert_eq!(batch(&[], |_| panic!("no")).await.1, untried);
        let one = batch(&[], |_| vec![Ok(())]).await.1;
        assert_eq!(one, ["completed", "untried", "untried", "untried", "untried"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_leaves_out_what_has_expired() {
        let all = |ids: &[i64]| ids.iter().map(|_| Ok(())).collect::<BatchResults>();
        // What has failed stops its lane, and what lies behind an expired record waits for the next run.
        let [done, untried] = ["completed", "untried"];
        assert_eq!(batch(&[2], all).await, (vec![1, 3, 4, 5], vec![done, untried, done, done, done]));
        assert_eq!(batch(&[3], all).await, (vec![1, 2, 5], vec![done, done, "failed", untried, done]));
    }
}
