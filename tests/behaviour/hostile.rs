//! Code of the user that panics, blocks or hangs at any place in a handler: only its own record fails.

use std::{
    fmt,
    future::ready,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use keylane::{
    Delivery, Handler, HandlerError, Observer, Outbox, Registration, RetryPolicy, Running, Signal,
    admin::{Filter, Status},
    database::Database,
    memory::{Fault, MemoryPool},
    partition::Partition,
};
use tokio::sync::Notify;

use crate::{
    ledger::{Ledger, Placed, Step, placed, run_of, typed},
    recorder::{LIMIT, Recorder, eventually},
    stage::{Stage, quick_config, until_count, until_empty},
    user::User,
};

/// An error that panics when its text is read.
#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words for it")
    }
}

impl std::error::Error for Unspeakable {}

/// A value that panics when it is dropped.
struct Sticky;

impl Drop for Sticky {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("it does not go");
        }
    }
}

/// Panics before the future exists.
struct Hasty;

impl Handler for Hasty {
    type Event = Placed;

    #[allow(clippy::manual_async_fn, reason = "the panic comes before the future")]
    fn handle(&self, event: Placed, _: &Delivery) -> impl Future<Output = Result<(), HandlerError>> + Send {
        assert_ne!(event.key, "bad", "not this one");
        async { Ok(()) }
    }
}

/// A handler whose records of the key `bad` fail: they spend their attempts, and the others are delivered
/// meanwhile. Returns the last error.
async fn fails_alone<T: User>(stage: &Stage<T>, handler: Registration) -> String {
    let handler = handler.retry(RetryPolicy::fixed(Duration::from_millis(20)).max_retries(1));
    let (outbox, running) = stage.run([handler]).await;
    let instance = running.instance();
    let events: Vec<Placed> = ["bad", "good-1", "good-2"].iter().flat_map(|key| run_of(key, 3)).collect();
    stage.schedule(&outbox, &events).await;
    until_count(&outbox, Status::Failed, 1).await;
    eventually("the others", async || {
        (outbox.admin().counts().await.unwrap().of(Status::Pending) == 0).then_some(())
    })
    .await;
    assert_eq!(running.instance(), instance, "it was evicted");
    assert!(running.shutdown().await.graceful);
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((failed.attempts, &*failed.lane.key), (2, "bad"));
    failed.last_error.unwrap()
}

pub(crate) async fn an_error_whose_text_panics_fails_its_record<T: User>(stage: &Stage<T>) {
    let handler = typed("bookkeeper", |event: Placed, _| async move {
        if event.key == "bad" { Err(HandlerError::new(Unspeakable)) } else { Ok(()) }
    });
    let error = fails_alone(stage, handler).await;
    assert!(error.contains("no words for it"), "{error}");
}

pub(crate) async fn a_future_that_panics_when_it_is_dropped_has_timed_out<T: User>(stage: &Stage<T>) {
    let handler = typed("bookkeeper", |event: Placed, _| async move {
        if event.key == "bad" {
            let _sticky = Sticky;
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let error = fails_alone(stage, handler.timeout(Duration::from_millis(100))).await;
    assert!(error.contains("no result within 100 ms"), "{error}");
}

pub(crate) async fn a_panic_before_the_future_is_a_failed_attempt<T: User>(stage: &Stage<T>) {
    let error = fails_alone(stage, Registration::typed("bookkeeper", Hasty)).await;
    assert!(error.contains("not this one"), "{error}");
}

/// Panics at every signal.
struct Startled(Arc<AtomicUsize>);

impl Observer for Startled {
    fn on(&self, _: &Signal) {
        self.0.fetch_add(1, SeqCst);
        panic!("what was that");
    }
}

/// Delivers three records, one after another. Another observer is told of all.
async fn delivers_beside<T: User>(stage: &Stage<T>, observer: impl Observer) {
    let ledger = Ledger::default();
    let builder = stage.builder().await.observer(observer);
    let outbox = builder.handlers([ledger.keeper("bookkeeper")]).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    for number in 1..=3 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        ledger.until_done(number as usize).await;
    }
    until_empty(&outbox).await;
    let settled = |signal: &Signal| matches!(signal, Signal::Settled { .. });
    stage.signals.at_least(1, "outcomes, told to the other observer", settled).await;
    assert!(running.shutdown().await.graceful);
}

pub(crate) async fn an_observer_that_panics_stops_nothing<T: User>(stage: &Stage<T>) {
    let signals = Arc::new(AtomicUsize::new(0));
    delivers_beside(stage, Startled(Arc::clone(&signals))).await;
    assert!(signals.load(SeqCst) > 3);
}

/// Blocks its thread at the first signal until the sender is dropped.
struct Stuck(Mutex<mpsc::Receiver<()>>);

impl Observer for Stuck {
    fn on(&self, _: &Signal) {
        let _ = self.0.lock().unwrap().recv();
    }
}

pub(crate) async fn an_observer_that_blocks_stops_nothing<T: User>(stage: &Stage<T>) {
    let (release, released) = mpsc::channel();
    delivers_beside(stage, Stuck(Mutex::new(released))).await;
    drop(release);
}

/// A handler that ends its first call of each key at once, and waits for a permit in later calls.
fn slow_after_one(ledger: &Ledger, go_on: &Arc<Notify>) -> Registration {
    let (ledger, go_on) = (ledger.clone(), Arc::clone(go_on));
    typed("bookkeeper", move |event: Placed, delivery| {
        let (ledger, go_on) = (ledger.clone(), Arc::clone(&go_on));
        async move {
            ledger.push(Step::Began, &event, &delivery);
            if event.number == 2 {
                go_on.notified().await;
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    })
}

/// A completed record is soon safe from a crash, however long the calls after it take.
pub(crate) async fn what_has_ended_is_written_while_later_calls_run<T: User>(stage: &Stage<T>) {
    let (ledger, go_on) = (Ledger::default(), Arc::new(Notify::new()));
    let (outbox, running) = stage.run([slow_after_one(&ledger, &go_on)]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until(Step::Began, None, 2).await;
    until_count(&outbox, Status::Pending, 2).await;
    go_on.notify_one();
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 3);
}

/// Another key of the same partition.
fn neighbour(of: &str) -> String {
    let mut keys = (0..).map(|number| format!("{of}-{number}"));
    keys.find(|key| Partition::of(key) == Partition::of(of)).unwrap()
}

/// A slow key fills the memory. Another key of its partition is blocked, and another process releases it.
pub(crate) async fn a_lane_released_by_another_process_goes_on_in_a_crowded_partition<T: User>(
    stage: &Stage<T>,
) {
    let (ledger, hung, blocked) = (Ledger::default(), "slow", neighbour("slow"));
    let (kept, key) = (ledger.clone(), blocked.clone());
    let repaired = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&repaired);
    let handler = typed("bookkeeper", move |event: Placed, delivery| {
        let (ledger, key, repaired) = (kept.clone(), key.clone(), Arc::clone(&seen));
        async move {
            if event.key != key {
                return std::future::pending().await;
            }
            if repaired.load(SeqCst) == 0 {
                return Err(HandlerError::permanent("not yet"));
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    let mut builder = stage.builder().await;
    let mut config = stage.config.clone();
    (config.delivery.batch_size, config.delivery.max_in_flight) = (16, 64);
    config.cluster.graceful_shutdown_timeout = Duration::from_millis(100);
    builder = builder.config(config);
    let outbox = builder.handlers([handler]).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &run_of(&blocked, 3)).await;
    let (record, _, _) = stage.signals.failed().await;
    // The signal comes before the write is durable.
    until_count(&outbox, Status::Failed, 1).await;
    stage.schedule(&outbox, &run_of(hung, 300)).await;
    // The memory is full of the slow key once no more of it is fetched.
    let fetched = |signal: &Signal| matches!(signal, Signal::Fetched { .. });
    stage.signals.at_least(3, "fetches that fill the memory", fetched).await;
    repaired.store(1, SeqCst);
    let elsewhere = stage.outbox([]).await;
    assert!(elsewhere.admin().retry(record).await.unwrap());
    ledger.until(Step::Done, Some(&blocked), 3).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of(&blocked), [1, 2, 3]);
}

/// A handler that awaits `before` and then, at one event of the key `blocks`, blocks its thread until the sender is
/// used. No handler should do that.
fn blocking_at<F: Future<Output = ()> + Send>(
    ledger: &Ledger,
    number: u32,
    before: impl Fn(&Placed) -> F + Send + Sync + 'static,
) -> (Registration, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let (ledger, released) = (ledger.clone(), Arc::new(Mutex::new(Some(released))));
    let handler = typed("bookkeeper", move |event: Placed, delivery| {
        let (ledger, released, before) = (ledger.clone(), Arc::clone(&released), before(&event));
        async move {
            ledger.push(Step::Began, &event, &delivery);
            before.await;
            let blocks = event.key == "blocks" && event.number == number;
            let first = released.lock().unwrap().take_if(|_| blocks);
            if let Some(released) = first {
                let _ = released.recv_timeout(LIMIT);
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    (handler, release)
}

/// A call of the key `blocks` blocks its thread until `release` is used. The five other events are delivered meanwhile.
async fn only_its_own_lane_stands_still<DB: Database>(
    ledger: &Ledger,
    outbox: &Outbox<DB>,
    running: Running,
    release: mpsc::Sender<()>,
) {
    let done = ledger.done_of("blocks");
    ledger.until(Step::Done, Some("other"), 5).await;
    assert_eq!(ledger.done_of("blocks"), done, "it blocks still");
    release.send(()).unwrap();
    until_empty(outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("other"), [1, 2, 3, 4, 5]);
}

/// The handler waits, and then blocks its thread. This thread may be the one that waited for the timers and sockets
/// of the runtime.
pub(crate) async fn a_handler_that_waits_and_blocks_stops_its_own_lane_only<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (handler, release) = blocking_at(&ledger, 1, |event| {
        tokio::time::sleep(Duration::from_millis(if event.key == "blocks" { 20 } else { 100 }))
    });
    let (outbox, running) = stage.run([handler]).await;
    let mut events = vec![placed("blocks", 1)];
    events.extend(run_of("other", 5));
    stage.schedule(&outbox, &events).await;
    only_its_own_lane_stands_still(&ledger, &outbox, running, release).await;
}

/// Short calls share a task. One of them blocks its thread, at once or after a wait.
pub(crate) async fn a_handler_that_blocks_among_short_calls_stops_its_own_lane_only<T: User>(
    stage: &Stage<T>,
) {
    for waits in [false, true] {
        let ledger = Ledger::default();
        let (handler, release) = blocking_at(&ledger, 1, move |_| async move {
            if waits {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
        });
        let (outbox, running) = stage.run([handler]).await;
        let short: Vec<Placed> = (0..500).map(|key| placed(&format!("short-{key}"), 1)).collect();
        stage.schedule(&outbox, &short).await;
        ledger.until(Step::Done, None, 500).await;
        let mut events = short[..60].to_vec();
        events.insert(30, placed("blocks", 1));
        stage.schedule(&outbox, &events).await;
        ledger.until(Step::Done, None, 560).await;
        assert!(ledger.done_of("blocks").is_empty(), "it blocks still");
        release.send(()).unwrap();
        until_empty(&outbox).await;
        running.shutdown().await;
        assert_eq!(ledger.done_of("blocks"), [1]);
    }
}

/// Two slow calls end, and their outcomes are reported as the third begins: this wakes the dispatcher, directly before
/// the thread blocks.
pub(crate) async fn a_handler_that_is_slow_and_blocks_stops_its_own_lane_only<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (handler, release) = blocking_at(&ledger, 3, |event| {
        let slow = Duration::from_millis(if event.key == "blocks" { 60 } else { 0 });
        let (open, silent) = mpsc::channel::<()>();
        async move {
            let _ = silent.recv_timeout(slow);
            drop(open);
        }
    });
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("blocks", 3)).await;
    ledger.until(Step::Began, Some("blocks"), 3).await;
    stage.schedule(&outbox, &run_of("other", 5)).await;
    only_its_own_lane_stands_still(&ledger, &outbox, running, release).await;
}

/// The handler wakes the workers, as each commit of the outbox does, and then blocks its thread.
pub(crate) async fn a_handler_that_wakes_the_workers_and_blocks_stops_its_own_lane_only<T: User>(
    stage: &Stage<T>,
) {
    let (ledger, place) = (Ledger::default(), Arc::new(OnceLock::<Outbox<T::Db>>::new()));
    let known = Arc::clone(&place);
    let (handler, release) = blocking_at(&ledger, 1, move |event| {
        let outbox = known.get().filter(|_| event.key == "blocks").cloned();
        async move { outbox.into_iter().for_each(|outbox| outbox.wake()) }
    });
    let outbox = stage.outbox([handler]).await;
    assert!(place.set(outbox.clone()).is_ok());
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &[placed("blocks", 1)]).await;
    ledger.until(Step::Began, Some("blocks"), 1).await;
    stage.schedule(&outbox, &run_of("other", 5)).await;
    only_its_own_lane_stands_still(&ledger, &outbox, running, release).await;
}

/// The lease lapses while a handler blocks its thread: the other lanes go on once the lease is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_past_a_lapse_stops_its_own_lane_only() {
    let (pool, signals, ledger) = (MemoryPool::new(), Recorder::default(), Ledger::default());
    let mut config = quick_config(&keylane::inner::Tables::default());
    config.cluster.heartbeat_interval = Duration::from_millis(100);
    config.cluster.stale_instance_timeout = Duration::from_secs(1);
    config.database.call_timeout = Duration::from_millis(500);
    let (handler, release) = blocking_at(&ledger, 1, |_| ready(()));
    let builder = Outbox::builder(pool.clone()).config(config).observer(signals.clone());
    let outbox = builder.handler(handler).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let schedule = async |event: Placed| {
        outbox.transaction(async |tx| outbox.schedule(tx, &event).await).await.unwrap();
    };
    schedule(placed("blocks", 1)).await;
    ledger.until(Step::Began, Some("blocks"), 1).await;
    // A failed beat is tried again after a fifth of the interval: more than a second without a reply.
    pool.fail_next("beat", 60, Fault::NotApplied);
    let lapsed = |signal: &Signal| matches!(signal, Signal::LeaseLapsed).then_some(());
    signals.first("the lease to lapse", lapsed).await;
    for number in 1..=5 {
        schedule(placed("other", number)).await;
    }
    only_its_own_lane_stands_still(&ledger, &outbox, running, release).await;
}
