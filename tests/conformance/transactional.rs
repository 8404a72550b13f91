//! Handlers in the transaction of their completion. Their effect in these cases is a dedup key.

use std::{sync::Arc, time::Duration};

use keylane::{
    Completed, HandlerError, Record, RecordId,
    admin::InstanceId,
    database::Database,
    handler::{BoxFuture, FailureKind, States, TransactionalBatchCall},
    inner::{Change, Claiming, FenceRow, Handlers, Resolution, Source, Transacted, TransactionalRun, Work},
    partition::Partition,
    rules::{claim::Reading, horizon::Server},
};

use crate::{
    outbox::{Outbox, Worker, retry_after, stop},
    target::{Connection, Target},
};

/// The end of the handler after its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Succeed,
    Fail,
    Panic,
    Hang,
}

struct Effect<DB: Database> {
    producer: Arc<DB::Producer>,
    then: Then,
}

impl<DB: Database> TransactionalBatchCall<DB> for Effect<DB> {
    fn call<'a>(
        &'a self,
        records: &'a [&'a Record],
        _: &'a States,
        tx: &'a mut DB::Connection,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            for record in records {
                let effect = format!("effect of {}", record.delivery.key);
                let first = DB::insert_dedup_key(tx, &self.producer, &effect).await?;
                assert!(first, "the effect is there already");
            }
            match self.then {
                Then::Succeed => Ok(()),
                Then::Fail => Err(HandlerError::permanent("refused")),
                Then::Panic => panic!("out of luck"),
                Then::Hang => std::future::pending().await,
            }
        })
    }
}

fn runner<T: Target>(outbox: &Outbox<T>, then: Then, completed: Completed) -> Arc<dyn TransactionalRun> {
    let call: Arc<dyn TransactionalBatchCall<T::Db>> =
        Arc::new(Effect { producer: Arc::clone(&outbox.producer), then });
    T::Db::transactional(&outbox.pool, &outbox.settings(completed), call)
}

/// The fence row of transactional handlers.
fn fence(worker: &Worker, counter: i64) -> FenceRow {
    FenceRow { slot: 1, counter, ..worker.fence() }
}

async fn run<T: Target>(outbox: &Outbox<T>, then: Then, fence: FenceRow, record: &Record) -> Transacted {
    run_all(outbox, then, fence, &[record]).await
}

async fn run_all<T: Target>(
    outbox: &Outbox<T>,
    then: Then,
    fence: FenceRow,
    records: &[&Record],
) -> Transacted {
    let timeout = Duration::from_millis(if then == Then::Hang { 200 } else { 10_000 });
    run_on(&*runner(outbox, then, Completed::Delete), fence, records, timeout).await
}

async fn run_on(
    runner: &dyn TransactionalRun,
    fence: FenceRow,
    records: &[&Record],
    timeout: Duration,
) -> Transacted {
    // A record that was tried before has stopped its lane.
    let tried = records.iter().filter(|record| record.delivery.attempt > 1);
    let stopping: Vec<RecordId> = tried.map(|record| record.delivery.id).collect();
    let states = States::default();
    let work = Work { records, stopping: &stopping, states: &states, timeout, may_start: &|| true };
    runner.run(fence, &work).await
}

/// Whether the effect exists. The transaction of the test is rolled back, so that it leaves no effect behind.
async fn has_effect<T: Target>(outbox: &Outbox<T>, key: &str) -> bool {
    let mut tx = outbox.begin().await;
    let effect = format!("effect of {key}");
    let conn: &mut Connection<T> = &mut tx;
    !T::Db::insert_dedup_key(conn, &outbox.producer, &effect).await.unwrap()
}

async fn one<T: Target>(outbox: &Outbox<T>) -> (Worker, Arc<Record>) {
    outbox.schedule_keys(&["order-1"]).await;
    (outbox.join().await, outbox.pending().await.remove(0))
}

pub(crate) async fn effect_and_completion_are_committed_together<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    let done = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
    assert!(has_effect(outbox, "order-1").await);
    assert!(outbox.pending().await.is_empty());
    assert_eq!(outbox.store.resolve(fence(&worker, 0)).await.unwrap(), Resolution::Applied);
}

/// A connection of the pool may lead to another server than the one on which the instance has joined.
pub(crate) async fn on_another_server_nothing_is_committed<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    let here = fence(&worker, 0);
    let there = FenceRow { server: Server(worker.server.0 + 1), ..here };
    let refused = run(outbox, Then::Succeed, there, &record).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    assert_eq!(outbox.pending().await.len(), 1);
    let done = run(outbox, Then::Succeed, here, &record).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

pub(crate) async fn completions_in_a_transaction_are_archived_or_kept_too<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule_keys(&["order-1", "order-2"]).await;
    let worker = outbox.join().await;
    let records = outbox.pending().await;
    let timeout = Duration::from_secs(10);
    for (counter, completed) in [Completed::Archive, Completed::Keep].into_iter().enumerate() {
        let runner = runner(outbox, Then::Succeed, completed);
        let fence = fence(&worker, counter as i64);
        let done = run_on(&*runner, fence, &[&records[counter]], timeout).await;
        assert!(matches!(done, Transacted::Committed), "{done:?}");
    }
    crate::outbox::a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::from_secs(3600)).await.unwrap(), 2);
}

/// The lease can end while the handler waits for a connection and a transaction.
pub(crate) async fn nothing_is_called_when_the_right_to_it_has_gone<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    let (records, timeout) = ([&*record], Duration::from_secs(10));
    let runner = runner(outbox, Then::Panic, Completed::Delete);
    let states = States::default();
    let work = Work { records: &records, stopping: &[], states: &states, timeout, may_start: &|| false };
    let done = runner.run(fence(&worker, 0), &work).await;
    assert!(matches!(done, Transacted::Untried), "{done:?}");
    assert_eq!(outbox.pending().await.len(), 1);
    assert_eq!(outbox.store.resolve(fence(&worker, 0)).await.unwrap(), Resolution::NotApplied);
}

pub(crate) async fn a_failure_takes_the_effect_back<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    for (then, kind) in [
        (Then::Fail, FailureKind::Error),
        (Then::Panic, FailureKind::Panic),
        (Then::Hang, FailureKind::Timeout),
    ] {
        match run(outbox, then, fence(&worker, 0), &record).await {
            Transacted::Failed(error) => assert_eq!(error.kind(), kind),
            other => panic!("{other:?}"),
        }
        assert!(!has_effect(outbox, "order-1").await);
    }
    assert_eq!(outbox.pending().await[0].failures(), 0);
    // The counter of the fence row is unchanged.
    let done = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

pub(crate) async fn an_evicted_instance_commits_no_effect<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    outbox.store.evict(worker.id, None).await.unwrap();
    let refused = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn a_fence_row_that_moved_on_commits_no_effect<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    assert_eq!(outbox.store.resolve(fence(&worker, 0)).await.unwrap(), Resolution::NotApplied);
    let refused = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    let done = run(outbox, Then::Succeed, fence(&worker, 0).invalidated(), &record).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

pub(crate) async fn a_record_settled_by_another_commits_no_effect<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, record) = one(outbox).await;
    worker.settle([(record.delivery.id, 0, retry_after(Duration::ZERO))]).await;
    let refused = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    assert_eq!(outbox.due().await[0].failures(), 1);
    // The counter of the fence row is unchanged.
    let again = outbox.due().await.remove(0);
    let done = run(outbox, Then::Succeed, fence(&worker, 0), &again).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

pub(crate) async fn an_effect_happens_once_however_often_it_is_tried<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    let mut committed = 0;
    for counter in 0..3 {
        match run(outbox, Then::Succeed, fence(&worker, counter.min(1)), &record).await {
            Transacted::Committed => committed += 1,
            // The handler finds its effect already there, or the completion finds no record.
            Transacted::Failed(_) | Transacted::Fenced => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(committed, 1);
}

pub(crate) async fn a_completion_in_a_transaction_lets_its_lane_go_on<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    let at_once = match stop() {
        Change::Retry { error, stop, counted, .. } => {
            Change::Retry { delay: Duration::ZERO, error, stop, counted }
        }
        other => other,
    };
    worker.settle([(ids[0], 0, at_once), (ids[1], 0, Change::Hold { behind: ids[0] })]).await;
    let again = outbox.due().await.remove(0);
    let done = run(outbox, Then::Succeed, fence(&worker, 0), &again).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
    assert_eq!(outbox.pending_ids("order-1").await, [ids[1]]);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_dropped_run_leaves_nothing<T: Target>(outbox: &Outbox<T>) {
    let (worker, record) = one(outbox).await;
    let (timeout, records) = (Duration::from_secs(60), [&*record]);
    for _ in 0..8 {
        // More calls than the pool has connections: each connection comes back or is replaced.
        let runner = runner(outbox, Then::Hang, Completed::Delete);
        let run = run_on(&*runner, fence(&worker, 0), &records, timeout);
        assert!(tokio::time::timeout(Duration::from_millis(150), run).await.is_err());
    }
    assert!(!has_effect(outbox, "order-1").await);
    assert_eq!(outbox.pending().await.len(), 1);
    let done = run(outbox, Then::Succeed, fence(&worker, 0), &record).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

/// Three records, the first of which has failed once before.
async fn three<T: Target>(outbox: &Outbox<T>) -> (Worker, Vec<Arc<Record>>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, retry_after(Duration::ZERO))]).await;
    let mut records = outbox.due().await;
    records.extend(outbox.pending().await);
    records.sort_by_key(|record| record.delivery.id);
    assert_eq!(records.iter().map(|record| record.delivery.id).collect::<Vec<_>>(), ids);
    (worker, records)
}

pub(crate) async fn many_completions_are_one_transaction<T: Target>(outbox: &Outbox<T>) {
    let (worker, records) = three(outbox).await;
    let all: Vec<&Record> = records.iter().map(Arc::as_ref).collect();
    for then in [Then::Fail, Then::Panic, Then::Hang] {
        let refused = run_all(outbox, then, fence(&worker, 0), &all).await;
        assert!(matches!(refused, Transacted::Failed(_)), "{refused:?}");
        assert!(!has_effect(outbox, "order-2").await);
    }
    let done = run_all(outbox, Then::Succeed, fence(&worker, 0), &all).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
    for key in ["order-1", "order-2", "order-3"] {
        assert!(has_effect(outbox, key).await);
    }
    assert!(outbox.pending().await.is_empty() && outbox.due().await.is_empty());
    // One move of the counter for all records.
    assert_eq!(outbox.store.resolve(fence(&worker, 0)).await.unwrap(), Resolution::Applied);
}

pub(crate) async fn many_completions_are_archived_or_kept_too<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    for (counter, completed) in [Completed::Archive, Completed::Keep].into_iter().enumerate() {
        outbox.schedule_keys(&[&format!("order-{counter}"), &format!("ship-{counter}")]).await;
        let records = outbox.pending().await;
        let records: Vec<&Record> = records.iter().map(Arc::as_ref).collect();
        assert_eq!(records.len(), 2);
        let runner = runner(outbox, Then::Succeed, completed);
        let timeout = Duration::from_secs(10);
        let done = run_on(&*runner, fence(&worker, counter as i64), &records, timeout).await;
        assert!(matches!(done, Transacted::Committed), "{done:?}");
    }
    crate::outbox::a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::from_secs(3600)).await.unwrap(), 4);
}

pub(crate) async fn one_record_settled_by_another_refuses_all<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, records) = three(outbox).await;
    worker.settle([(records[2].delivery.id, 0, Change::Complete)]).await;
    let all: Vec<&Record> = records.iter().map(Arc::as_ref).collect();
    let refused = run_all(outbox, Then::Succeed, fence(&worker, 0), &all).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    // The counter of the fence row is unchanged.
    let done = run_all(outbox, Then::Succeed, fence(&worker, 0), &all[..2]).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
}

pub(crate) async fn an_evicted_instance_commits_none_of_many<T: Target>(outbox: &Outbox<T>) {
    let (worker, records) = three(outbox).await;
    outbox.store.evict(worker.id, None).await.unwrap();
    let all: Vec<&Record> = records.iter().map(Arc::as_ref).collect();
    let refused = run_all(outbox, Then::Succeed, fence(&worker, 0), &all).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    assert!(!has_effect(outbox, "order-1").await);
    assert_eq!((outbox.pending().await.len(), outbox.due().await.len()), (2, 1));
}

/// The tokens of claims take the place of the fence row: a handler that outlived its lease commits no effect.
pub(crate) async fn a_transaction_completes_what_is_claimed_and_nothing_else<T: Target>(outbox: &Outbox<T>) {
    let (owner, other) = (InstanceId::generate(), InstanceId::generate());
    let claim =
        |owner, source, lease| Claiming { owner, lease, source, handlers: Handlers::Every, limit: 10 };
    let pending = Source::Pending(Reading::Index { from: Partition::new(0).unwrap() });
    let states = States::default();
    let runs = async |who, then, records: &[Arc<Record>]| {
        let records: Vec<&Record> = records.iter().map(Arc::as_ref).collect();
        let timeout = Duration::from_secs(10);
        let work = Work { records: &records, stopping: &[], states: &states, timeout, may_start: &|| true };
        runner(outbox, then, Completed::Delete).run_claimed(who, &work).await
    };
    outbox.schedule_keys(&["order-1", "order-2"]).await;
    let short = claim(owner, pending, Duration::from_millis(1));
    let stale = outbox.store.claim_records(short).await.unwrap().records;
    crate::outbox::a_moment().await;
    let long = claim(other, Source::Due, Duration::from_secs(3600));
    let held = outbox.store.claim_records(long).await.unwrap().records;
    let refused = runs(owner, Then::Succeed, &stale).await;
    assert!(matches!(refused, Transacted::Fenced), "{refused:?}");
    let refused = runs(other, Then::Succeed, &stale).await;
    assert!(matches!(refused, Transacted::Fenced), "its token is an older one: {refused:?}");
    let failed = runs(other, Then::Fail, &held[..1]).await;
    assert!(matches!(failed, Transacted::Failed(_)), "{failed:?}");
    assert!(!has_effect(outbox, "order-1").await && !has_effect(outbox, "order-2").await);
    let done = runs(other, Then::Succeed, &held).await;
    assert!(matches!(done, Transacted::Committed), "{done:?}");
    assert!(has_effect(outbox, "order-1").await && has_effect(outbox, "order-2").await);
    assert!(outbox.store.counts().await.unwrap().records.is_empty());
}
