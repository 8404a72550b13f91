//! Claimed mode through the front door: the same handlers, failures and repairs, without order and without a
//! cluster.

mod leases;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    BuildError, Config, Delivery, Mode, OnFailure, Outbox, Registration, RetryPolicy, Running,
    ScheduleOptions, SchemaError, Signal, StartError,
    admin::{Filter, Status},
};

use crate::{
    batches::batch,
    fallbacks::fallback,
    ledger::{Ledger, Placed, Step, dealt, placed, run_of, typed},
    recorder::bounded,
    retrying::{failing, refused},
    stage::{Stage, until_count, until_empty},
    transactions::{Then, book},
    user::User,
};

/// Claimed mode with short times.
fn config<T: User>(stage: &Stage<T>) -> Config {
    let mut config = stage.config.clone();
    config.mode = Mode::Claimed;
    config.database.call_timeout = Duration::from_secs(5);
    config
}

async fn outbox_with<T: User>(
    stage: &Stage<T>,
    config: Config,
    handlers: impl IntoIterator<Item = Registration>,
) -> Outbox<T::Db> {
    stage.builder().await.config(config).handlers(handlers).build().await.unwrap()
}

async fn run<T: User>(
    stage: &Stage<T>,
    handlers: impl IntoIterator<Item = Registration>,
) -> (Outbox<T::Db>, Running) {
    let outbox = outbox_with(stage, config(stage), handlers).await;
    let running = outbox.start().await.unwrap();
    (outbox, running)
}

/// The keys and numbers of the calls that have succeeded, and how many there were.
fn done(ledger: &Ledger) -> (BTreeSet<(String, u32)>, usize) {
    let steps = ledger.steps(Step::Done);
    (steps.iter().map(|entry| (entry.event.key.clone(), entry.event.number)).collect(), steps.len())
}

pub(crate) async fn two_processes_share_records_and_call_each_once<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let slow = |ledger: &Ledger| ledger.keeper("bookkeeper").concurrency(4);
    let mut small = config(stage);
    (small.delivery.batch_size, small.delivery.max_in_flight) = (20, 40);
    let (one, other) = (
        outbox_with(stage, small.clone(), [slow(&ledger)]).await,
        outbox_with(stage, small, [slow(&ledger)]).await,
    );
    let (first, second) = (one.start().await.unwrap(), other.start().await.unwrap());
    stage.schedule(&one, &dealt(100, 3)).await;
    other.wake();
    bounded("all records", ledger.until_done(300)).await;
    until_empty(&one).await;
    let (keys, calls) = done(&ledger);
    assert_eq!((keys.len(), calls), (300, 300));
    assert!(ledger.all().iter().all(|entry| entry.delivery.generation.0 == 1), "each was claimed once");
    assert!(one.admin().instances(10).await.unwrap().is_empty(), "there is no cluster");
    assert!(first.health().ready && second.health().live);
    for running in [first, second] {
        let report = running.shutdown().await;
        assert!(report.graceful && report.cancelled == 0);
    }
}

/// The poll interval is longer than the test.
pub(crate) async fn a_commit_is_handed_over_at_once<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut patient = config(stage);
    patient.delivery.poll_interval = Duration::from_secs(3600);
    patient.delivery.claim_lease = Duration::from_secs(7200);
    let outbox = outbox_with(stage, patient, [ledger.keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    for number in 1..=5 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        ledger.until_done(number as usize).await;
    }
    running.shutdown().await;
}

pub(crate) async fn failures_are_retried_and_spent_ones_are_repaired<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let policy = RetryPolicy::fixed(Duration::from_millis(50)).max_retries(2);
    let handler = failing(&ledger, 1, 3, refused).retry(policy);
    let (outbox, running) = run(stage, [handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let (record, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (3, false), "no key stands still");
    ledger.until_done(2).await;
    until_count(&outbox, Status::Failed, 1).await;
    let told = stage.signals.count(|signal| matches!(signal, Signal::RetryScheduled { .. }));
    assert_eq!(told, 2);
    assert!(outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty());
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!((failed[0].id, failed[0].attempts), (record, 3));
    assert!(outbox.admin().retry(record).await.unwrap(), "a person has it tried again, from attempt 1");
    stage
        .signals
        .at_least(2, "failures for good", |signal| matches!(signal, Signal::RecordFailed { .. }))
        .await;
    until_count(&outbox, Status::Failed, 1).await;
    assert!(outbox.admin().discard(record).await.unwrap());
    until_empty(&outbox).await;
    running.shutdown().await;
}

pub(crate) async fn a_fallback_takes_what_is_spent<T: User>(stage: &Stage<T>) {
    let (ledger, (takes, mut told)) = (Ledger::default(), fallback("own"));
    let policy = RetryPolicy::fixed(Duration::from_millis(20)).max_retries(1);
    let handler = failing(&ledger, 1, 9, refused).retry(policy);
    let (outbox, running) = run(stage, [handler, Registration::fallback("bookkeeper", takes)]).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    let (_, event, failure) = bounded("the fallback", told.recv()).await.unwrap();
    assert_eq!((event.number, failure.attempts), (1, 2));
    until_empty(&outbox).await;
    running.shutdown().await;
}

pub(crate) async fn batches_of_any_keys_and_of_one_key_are_called<T: User>(stage: &Stage<T>) {
    for mixed in [true, false] {
        let once_refused = |(event, delivery): &(Placed, Delivery)| match (event.number, delivery.attempt) {
            (2, 1) => Err(refused()),
            _ => Ok(()),
        };
        let (handler, calls) = batch(move |call| call.iter().map(once_refused).collect());
        let make = if mixed { Registration::mixed_batch } else { Registration::batch };
        let handler = make("bookkeeper", 8, handler).retry(RetryPolicy::fixed(Duration::from_millis(20)));
        let outbox = outbox_with(stage, config(stage), [handler]).await;
        stage.schedule(&outbox, &dealt(4, 4)).await;
        let running = outbox.start().await.unwrap();
        until_empty(&outbox).await;
        running.shutdown().await;
        let mut numbers = BTreeSet::new();
        let mut largest = 0;
        for call in calls.all() {
            let keys: BTreeSet<&String> = call.iter().map(|(event, _)| &event.key).collect();
            assert!(mixed || keys.len() == 1, "{keys:?}");
            largest = largest.max(call.len());
            numbers.extend(
                call.iter().map(|(event, delivery)| (event.key.clone(), event.number, delivery.attempt)),
            );
        }
        assert_eq!(largest, if mixed { 8 } else { 4 });
        assert_eq!(numbers.len(), 16 + 4, "each once, and the second of each key again");
    }
}

pub(crate) async fn a_transactional_handler_has_each_effect_once<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let handler = book(stage, &ledger, |event, delivery| match (event.number, delivery.attempt) {
        (2, 1) => Then::Fail,
        (3, 1) => Then::Panic,
        _ => Then::Succeed,
    });
    let handler = handler.await.retry(RetryPolicy::fixed(Duration::from_millis(20)));
    let (outbox, running) = run(stage, [handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 5)).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    let effects: Vec<String> = (1..=5).map(|number| format!("order-1/{number}")).collect();
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, effects);
}

/// The handler takes three leases. On a busy machine a renewal may come late, so a longer lease follows.
pub(crate) async fn a_handler_that_outlasts_its_lease_is_called_once<T: User>(stage: &Stage<T>) {
    for lease in [3, 9, 27].map(Duration::from_secs) {
        if calls_within(lease, stage).await == 1 {
            return;
        }
    }
    panic!("each lease was too short");
}

/// The calls of one event in two processes.
async fn calls_within<T: User>(lease: Duration, stage: &Stage<T>) -> u32 {
    let mut short = config(stage);
    short.database.call_timeout = lease / 2;
    short.delivery.claim_lease = lease;
    let calls = Arc::new(AtomicU32::new(0));
    let slow = || {
        let calls = Arc::clone(&calls);
        typed("bookkeeper", move |_, _| {
            calls.fetch_add(1, SeqCst);
            async move {
                tokio::time::sleep(lease * 3).await;
                Ok(())
            }
        })
        .timeout(lease * 20)
        .concurrency(1)
    };
    let (one, other) =
        (outbox_with(stage, short.clone(), [slow()]).await, outbox_with(stage, short, [slow()]).await);
    let (first, second) = (one.start().await.unwrap(), other.start().await.unwrap());
    stage.schedule(&one, &[placed("order-1", 1)]).await;
    until_empty(&one).await;
    first.shutdown().await;
    second.shutdown().await;
    calls.load(SeqCst)
}

/// A process that is dropped is one that crashes: nobody gives its claims back.
pub(crate) async fn claims_of_a_crashed_process_come_again_after_the_lease<T: User>(stage: &Stage<T>) {
    let mut short = config(stage);
    short.database.call_timeout = Duration::from_secs(1);
    short.delivery.claim_lease = Duration::from_secs(2);
    let ledger = Ledger::default();
    let begun = ledger.clone();
    let hangs = typed("bookkeeper", move |event, delivery| {
        begun.push(Step::Began, &event, &delivery);
        std::future::pending()
    });
    let crashes = outbox_with(stage, short.clone(), [hangs]).await;
    let running = crashes.start().await.unwrap();
    stage.schedule(&crashes, &run_of("order-1", 3)).await;
    ledger.until(Step::Began, None, 3).await;
    let claimed = tokio::time::Instant::now();
    drop(running);
    let outbox = outbox_with(stage, short, [ledger.keeper("bookkeeper")]).await;
    let next = outbox.start().await.unwrap();
    ledger.until_done(3).await;
    assert!(claimed.elapsed() > Duration::from_millis(500), "the claims were waited for");
    let again: Vec<(i64, u32)> = ledger
        .steps(Step::Done)
        .iter()
        .map(|entry| (entry.delivery.generation.0, entry.delivery.attempt))
        .collect();
    assert_eq!(again, [(2, 1); 3], "the token has grown, and no attempt is counted");
    until_empty(&outbox).await;
    next.shutdown().await;
}

/// In the first two processes all calls hang, so that every record is a suspect when they have crashed; in
/// later ones that of one record.
pub(crate) async fn a_record_that_no_process_survives_is_set_aside<T: User>(stage: &Stage<T>) {
    let mut short = config(stage);
    short.database.call_timeout = Duration::from_secs(1);
    (short.delivery.claim_lease, short.delivery.max_crashes) = (Duration::from_secs(2), 1);
    short.delivery.poll_interval = Duration::from_millis(50);
    let ledger = Ledger::default();
    let scheduled = outbox_with(stage, short.clone(), [ledger.keeper("bookkeeper")]).await;
    let failed = |signal: &Signal| match signal {
        Signal::RecordFailed { attempts, error, .. } => Some((*attempts, error.clone())),
        _ => None,
    };
    for process in 1..=3 {
        let kept = ledger.clone();
        let deadly = typed("bookkeeper", move |event, delivery| {
            let hangs = process < 3 || event.number == 1;
            kept.push(if hangs { Step::Began } else { Step::Done }, &event, &delivery);
            async move {
                match hangs {
                    true => std::future::pending().await,
                    false => Ok(()),
                }
            }
        });
        let outbox = outbox_with(stage, short.clone(), [deadly]).await;
        let running = outbox.start().await.unwrap();
        if process == 1 {
            stage.schedule(&scheduled, &run_of("order-1", 4)).await;
        }
        let calls = if process < 3 { 4 * process } else { 9 };
        bounded("calls", ledger.until(Step::Began, None, calls)).await;
        if process == 3 {
            let crashed = |signal: &Signal| failed(signal).is_some();
            assert_eq!(stage.signals.count(crashed), 0, "one crash more");
        }
        drop(running);
    }
    let running = scheduled.start().await.unwrap();
    let (attempts, error) = stage.signals.first("a record that is given up", failed).await;
    assert_eq!(attempts, 1);
    assert!(error.starts_with("crashed: the process ended 1 times"), "{error}");
    ledger.until_done(3).await;
    until_count(&scheduled, Status::Failed, 1).await;
    assert_eq!(scheduled.admin().counts().await.unwrap().records.len(), 1, "the others are completed");
    assert!(ledger.steps(Step::Done).iter().all(|entry| entry.event.number != 1));
    running.shutdown().await;
}

pub(crate) async fn a_shutdown_gives_back_what_waits<T: User>(stage: &Stage<T>) {
    let (release, held) = tokio::sync::watch::channel(false);
    let ledger = Ledger::default();
    let kept = ledger.clone();
    let waits = typed("bookkeeper", move |event, delivery| {
        kept.push(Step::Began, &event, &delivery);
        let mut held = held.clone();
        async move {
            let _ = held.wait_for(|release| *release).await;
            Ok(())
        }
    })
    .concurrency(1);
    let (outbox, running) = run(stage, [waits]).await;
    stage.schedule(&outbox, &run_of("order-1", 5)).await;
    ledger.until(Step::Began, None, 1).await;
    let ending = tokio::spawn(running.shutdown());
    until_count(&outbox, Status::Pending, 4).await;
    release.send_replace(true);
    assert!(ending.await.unwrap().graceful);
    until_count(&outbox, Status::Pending, 4).await;
    assert_eq!(outbox.admin().counts().await.unwrap().records.len(), 1, "the one that ran is completed");
}

pub(crate) async fn a_slow_handler_holds_no_other_back<T: User>(stage: &Stage<T>) {
    let mut small = config(stage);
    (small.delivery.batch_size, small.delivery.max_in_flight) = (10, 20);
    let ledger = Ledger::default();
    let stuck = typed("stuck", |_, _| std::future::pending()).concurrency(1);
    let outbox = outbox_with(stage, small, [stuck, ledger.keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &dealt(50, 2)).await;
    ledger.until_done(100).await;
    drop(running);
}

pub(crate) async fn a_record_that_no_handler_takes_is_left_to_other_builds<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let other = ledger.handler("elsewhere", |_, _| Ok(()));
    let publisher = outbox_with(stage, config(stage), [other]).await;
    let published = publisher.start().await.unwrap();
    published.shutdown().await;
    let (outbox, running) = run(stage, [ledger.keeper("bookkeeper")]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    let told = |signal: &Signal| match signal {
        Signal::Unroutable { lane, .. } => Some(lane.handler.to_string()),
        _ => None,
    };
    assert_eq!(stage.signals.first("a record without a handler", told).await, "elsewhere");
    ledger.until_done(1).await;
    until_count(&outbox, Status::Delayed, 1).await;
    running.shutdown().await;
}

pub(crate) async fn the_modes_do_not_meet<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (partitioned, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let claimed = outbox_with(stage, config(stage), [ledger.keeper("bookkeeper")]).await;
    let is_refused = |error: Option<StartError>, found, wanted| match error {
        Some(StartError::Schema(SchemaError::Mode { found: f, wanted: w })) => {
            assert_eq!((f, w), (found, wanted))
        }
        other => panic!("{other:?}"),
    };
    is_refused(claimed.start().await.err(), "partitioned", "claimed");
    running.shutdown().await;
    let running = claimed.start().await.unwrap();
    is_refused(partitioned.start().await.err(), "claimed", "partitioned");
    running.shutdown().await;
}

pub(crate) async fn what_needs_an_order_is_refused<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    for handler in [
        ledger.keeper("bookkeeper").stop_on_first_failure(true),
        ledger.keeper("bookkeeper").on_failure(OnFailure::Block),
    ] {
        let built = stage.builder().await.config(config(stage)).handlers([handler]).build().await;
        let Err(BuildError::Handlers { problems }) = built else { panic!("it has an order") };
        assert!(problems[0].to_string().contains("mode is claimed"), "{problems:?}");
    }
    let mut strict = config(stage);
    strict.delivery.claim_lease = Duration::from_secs(1);
    strict.delivery.on_failure = Some(OnFailure::Block);
    strict.schedule.order = keylane::OrderLevel::Strict;
    let problems = strict.validate().unwrap_err().problems;
    assert_eq!(problems.len(), 3, "{problems:?}");
    let delayed = ScheduleOptions::new().after(Duration::from_millis(200));
    let (outbox, running) = run(stage, [ledger.keeper("bookkeeper")]).await;
    outbox
        .transaction(async |tx| outbox.schedule_with(tx, &placed("order-1", 1), delayed).await)
        .await
        .unwrap();
    ledger.until_done(1).await;
    running.shutdown().await;
}
