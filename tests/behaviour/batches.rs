//! Batch handlers: which records come together, and how their results count.

use std::{collections::BTreeMap, sync::Arc};

use keylane::{
    BatchHandler, BatchResults, Delivery, HandlerError, OnFailure, Record, RecordTypes, Registration,
    RetryPolicy, ScheduleOptions,
    admin::{Filter, Status},
    handler::{GenericBatchHandler, OnUndecodable},
};

use crate::{
    ledger::{Cancelled, Placed, dealt, placed, run_of},
    recorder::Log,
    stage::{Stage, until_count, until_empty},
    user::User,
};

/// The events and deliveries of one call.
pub(crate) type Call = Vec<(Placed, Delivery)>;

/// Lists its calls and returns the results of `results`.
pub(crate) struct Batch<F> {
    calls: Arc<Log<Call>>,
    results: F,
}

impl<F> BatchHandler for Batch<F>
where
    F: Fn(&Call) -> BatchResults + Send + Sync + 'static,
{
    type Event = Placed;

    async fn handle(&self, events: Vec<Placed>, deliveries: &[&Delivery]) -> BatchResults {
        assert_eq!(events.len(), deliveries.len());
        let call: Call =
            events.into_iter().zip(deliveries.iter().map(|&delivery| delivery.clone())).collect();
        let results = (self.results)(&call);
        self.calls.push(call);
        results
    }
}

pub(crate) fn batch<F>(results: F) -> (Batch<F>, Arc<Log<Call>>)
where
    F: Fn(&Call) -> BatchResults + Send + Sync + 'static,
{
    let calls = Arc::new(Log::default());
    (Batch { calls: Arc::clone(&calls), results }, calls)
}

pub(crate) fn all_done(call: &Call) -> BatchResults {
    call.iter().map(|_| Ok(())).collect()
}

/// The numbers and attempts of each call.
pub(crate) fn numbers(calls: &Log<Call>) -> Vec<Vec<(u32, u32)>> {
    let number = |(event, delivery): &(Placed, Delivery)| (event.number, delivery.attempt);
    calls.all().iter().map(|call| call.iter().map(number).collect()).collect()
}

/// Schedules before the workers start, so that they find all events at once.
async fn deliver<T: User>(stage: &Stage<T>, handler: Registration, events: &[Placed]) {
    let outbox = stage.outbox([handler]).await;
    stage.schedule(&outbox, events).await;
    let running = outbox.start().await.unwrap();
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
}

pub(crate) async fn a_batch_is_a_run_of_one_key<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(all_done);
    deliver(stage, Registration::batch("search", 8, handler), &dealt(5, 20)).await;
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    let mut largest = 0;
    for call in calls.all() {
        largest = largest.max(call.len());
        assert!((1..=8).contains(&call.len()), "{} records", call.len());
        assert!(call.iter().all(|(event, _)| event.key == call[0].0.key), "a batch of several keys");
        for (event, delivery) in &call {
            let next = next.entry(event.key.clone()).or_insert(1);
            assert_eq!((event.number, delivery.attempt), (*next, 1));
            assert_eq!(delivery.key, event.key);
            *next += 1;
        }
    }
    assert_eq!(largest, 8, "twenty of a key are there at once");
    assert!(next.values().all(|next| *next == 21), "{next:?}");
}

pub(crate) async fn results_after_the_first_failure_do_not_count<T: User>(stage: &Stage<T>) {
    // The handler goes on after a failure, which the rule forbids: the later results do not count.
    let (handler, calls) = batch(|call: &Call| {
        let result = |(event, delivery): &(Placed, Delivery)| match (event.number, delivery.attempt) {
            (3, 1) => Err(HandlerError::new("not yet")),
            _ => Ok(()),
        };
        call.iter().map(result).collect()
    });
    deliver(stage, Registration::batch("search", 5, handler), &run_of("order-1", 5)).await;
    let first = vec![(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];
    assert_eq!(numbers(&calls), [first, vec![(3, 2)], vec![(4, 1), (5, 1)]]);
}

/// The lane goes on past a record that has failed for good, but the handler must stop at it nevertheless.
pub(crate) async fn results_after_a_failure_for_good_do_not_count<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| {
        let refused = call.iter().position(|(event, _)| event.number == 2);
        let result = |place: usize| match refused {
            Some(refused) if place == refused => Err(HandlerError::permanent("no")),
            Some(refused) if place > refused => Err(HandlerError::new("one before it has failed")),
            _ => Ok(()),
        };
        (0..call.len()).map(result).collect()
    });
    let handler = Registration::batch("search", 4, handler).on_failure(OnFailure::Continue);
    let outbox = stage.outbox([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 4)).await;
    let running = outbox.start().await.unwrap();
    calls.until("the second call", |calls| (calls.len() >= 2).then_some(())).await;
    running.shutdown().await;
    assert_eq!(numbers(&calls), [vec![(1, 1), (2, 1), (3, 1), (4, 1)], vec![(3, 1), (4, 1)]]);
}

pub(crate) async fn without_a_stop_each_result_counts<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| {
        let fails = |event: &Placed, delivery: &Delivery| event.number == 2 && delivery.attempt == 1;
        let result = |(event, delivery): &(Placed, Delivery)| match fails(event, delivery) {
            true => Err(HandlerError::new("not yet")),
            false => Ok(()),
        };
        call.iter().map(result).collect()
    });
    let handler = Registration::batch("search", 4, handler).stop_on_first_failure(false);
    deliver(stage, handler, &run_of("order-1", 4)).await;
    assert_eq!(numbers(&calls), [vec![(1, 1), (2, 1), (3, 1), (4, 1)], vec![(2, 2)]]);
}

pub(crate) async fn records_without_a_result_come_again<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| call.iter().take(2).map(|_| Ok(())).collect());
    deliver(stage, Registration::batch("search", 5, handler), &run_of("order-1", 5)).await;
    let calls = numbers(&calls);
    let tried: Vec<(u32, u32)> = calls.iter().flat_map(|call| call.iter().take(2)).copied().collect();
    assert_eq!(tried, [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], "no attempt is counted for the others");
    assert_eq!(calls.len(), 3);
}

pub(crate) async fn a_batch_that_returns_nothing_has_failed<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|_: &Call| Vec::new());
    let handler = Registration::batch("search", 5, handler).retry(RetryPolicy::never());
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    until_count(&outbox, Status::Failed, 1).await;
    until_count(&outbox, Status::Held, 2).await;
    let error = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0).last_error.unwrap();
    assert!(error.contains("returned no results"), "{error}");
    assert_eq!(calls.all().len(), 1);
    running.shutdown().await;
}

pub(crate) async fn a_batch_that_panics_fails_its_first_record<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| {
        assert!(call[0].0.number > 1 || call[0].1.attempt > 1, "out of luck");
        all_done(call)
    });
    deliver(stage, Registration::batch("search", 3, handler), &run_of("order-1", 3)).await;
    // The call that panicked is not in the list.
    assert_eq!(numbers(&calls), [vec![(1, 2)], vec![(2, 1), (3, 1)]]);
}

pub(crate) async fn a_payload_that_does_not_fit_ends_its_batch<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(all_done);
    let policy = RetryPolicy::default().undecodable(OnUndecodable::Fail);
    let outbox = stage.outbox([Registration::batch("search", 5, handler).retry(policy)]).await;
    let mut work = T::begin(&stage.pool).await;
    for number in 1..=4 {
        let payload = match number {
            3 => b"{}".to_vec(),
            _ => serde_json::to_vec(&placed("order-1", number)).unwrap(),
        };
        let event = keylane::RawEvent::new("order.placed", "order-1", payload);
        outbox.schedule_raw(&mut work, event, ScheduleOptions::new()).await.unwrap();
    }
    T::commit(work).await;
    let running = outbox.start().await.unwrap();
    let (record, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (1, true));
    until_count(&outbox, Status::Failed, 1).await;
    assert_eq!(numbers(&calls), [vec![(1, 1), (2, 1)]]);
    assert!(outbox.admin().discard(record).await.unwrap());
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(numbers(&calls), [vec![(1, 1), (2, 1)], vec![(4, 1)]]);
}

pub(crate) async fn a_mixed_batch_keeps_the_order_of_each_key<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| {
        let fails = |event: &Placed, delivery: &Delivery| event.number % 7 == 3 && delivery.attempt == 1;
        let result = |(event, delivery): &(Placed, Delivery)| match fails(event, delivery) {
            true => Err(HandlerError::new("not yet")),
            false => Ok(()),
        };
        call.iter().map(result).collect()
    });
    deliver(stage, Registration::mixed_batch("search", 50, handler), &dealt(10, 20)).await;
    let calls = calls.all();
    let several = |call: &&Call| call.iter().any(|(event, _)| event.key != call[0].0.key);
    assert!(calls.iter().filter(several).count() >= 1, "no batch had several keys");
    assert!(calls.iter().all(|call| call.len() <= 50));
    // Within a call, only the results before the first failure of a key count.
    let mut next: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for call in &calls {
        let mut failed: Vec<&str> = Vec::new();
        for (event, delivery) in call.iter() {
            if failed.contains(&event.key.as_str()) {
                continue;
            }
            let expected = next.entry(&event.key).or_insert((1, 1));
            assert_eq!((event.number, delivery.attempt), *expected, "of {}", event.key);
            match event.number % 7 == 3 && delivery.attempt == 1 {
                true => {
                    failed.push(&event.key);
                    expected.1 = 2;
                }
                false => *expected = (event.number + 1, 1),
            }
        }
    }
    assert!(next.values().all(|next| *next == (21, 1)), "{next:?}");
}

pub(crate) async fn a_mixed_batch_with_few_results_tries_the_others_again<T: User>(stage: &Stage<T>) {
    let (handler, calls) = batch(|call: &Call| call.iter().take(3).map(|_| Ok(())).collect());
    deliver(stage, Registration::mixed_batch("search", 10, handler), &dealt(4, 4)).await;
    let tried: usize = calls.all().iter().map(|call| call.len().min(3)).sum();
    assert_eq!(tried, 16);
    assert!(calls.all().iter().flatten().all(|(_, delivery)| delivery.attempt == 1));
}

/// Lists the types and keys of its calls. If `away`, the target is unreachable in the first call.
struct Relay {
    calls: Arc<Log<Vec<(String, String, u32)>>>,
    away: std::sync::atomic::AtomicBool,
}

impl GenericBatchHandler for Relay {
    async fn handle(&self, records: &[&Record]) -> BatchResults {
        let told = |record: &&Record| {
            let Delivery { record_type, key, attempt, .. } = &record.delivery;
            (record_type.to_string(), key.to_string(), *attempt)
        };
        self.calls.push(records.iter().map(told).collect());
        let away = self.away.swap(false, std::sync::atomic::Ordering::SeqCst);
        let result = |_: &&Record| match away {
            true => Err(HandlerError::unavailable(std::time::Duration::from_millis(100))),
            false => Ok(()),
        };
        records.iter().map(result).collect()
    }
}

/// Schedules two orders of each of six keys, then their cancellations. Returns the calls of a relay of all
/// types.
async fn relayed<T: User>(stage: &Stage<T>, away: bool) -> Vec<Vec<(String, String, u32)>> {
    let calls = Arc::new(Log::default());
    let relay = Relay { calls: Arc::clone(&calls), away: away.into() };
    let relay =
        Registration::generic_batch("relay", RecordTypes::all(), 100, relay).retry(RetryPolicy::never());
    let outbox = stage.outbox([relay]).await;
    // The first start publishes the types that the relay takes.
    outbox.start().await.unwrap().shutdown().await;
    stage.schedule(&outbox, &dealt(6, 2)).await;
    let mut work = T::begin(&stage.pool).await;
    for key in 1..=6 {
        outbox.schedule(&mut work, &Cancelled { key: format!("key-{key}") }).await.unwrap();
    }
    T::commit(work).await;
    let running = outbox.start().await.unwrap();
    until_empty(&outbox).await;
    running.shutdown().await;
    calls.all()
}

/// The relayed records of each key, in order.
fn by_key(calls: &[Vec<(String, String, u32)>]) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (record_type, key, attempt) in calls.iter().flatten() {
        assert_eq!(*attempt, 1, "nothing has failed");
        keys.entry(key.clone()).or_default().push(record_type.clone());
    }
    keys
}

fn orders_and_then_the_cancellation(keys: &BTreeMap<String, Vec<String>>) -> bool {
    keys.len() == 6
        && keys.values().all(|types| *types == ["order.placed", "order.placed", "order.cancelled"])
}

pub(crate) async fn a_generic_batch_takes_records_of_all_types_and_keys<T: User>(stage: &Stage<T>) {
    let calls = relayed(stage, false).await;
    assert!(orders_and_then_the_cancellation(&by_key(&calls)), "{calls:?}");
    let kinds = |call: &Vec<(String, String, u32)>| call.iter().map(|(_, key, _)| key.clone()).collect();
    let most = calls.iter().map(kinds).max_by_key(std::collections::BTreeSet::<String>::len);
    assert!(most.is_some_and(|keys| keys.len() > 1), "several keys in one call: {calls:?}");
}

pub(crate) async fn a_generic_batch_whose_target_is_away_keeps_the_order_of_each_key<T: User>(
    stage: &Stage<T>,
) {
    let mut calls = relayed(stage, true).await;
    let first = calls.remove(0);
    assert!(!first.is_empty());
    assert!(orders_and_then_the_cancellation(&by_key(&calls)), "all of it comes again: {calls:?}");
}
