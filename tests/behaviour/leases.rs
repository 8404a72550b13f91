//! Leases and time, on tokio's paused clock: with the store in memory, a long outage takes no time.

use std::time::Duration;

use keylane::{
    Config, Outbox, OutboxBuilder, Registration, Running, Signal,
    inner::Tables,
    memory::{Fault, Memory, MemoryPool},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    ledger::{Ledger, Placed, Step, placed, run_of, typed},
    recorder::Recorder,
    stage::until_empty,
};

/// A stage as `Stage`, on the clock of the test's runtime.
pub(crate) struct Paused {
    pub(crate) pool: MemoryPool,
    pub(crate) signals: Recorder,
    pub(crate) config: Config,
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Paused {
    pub(crate) fn new() -> Self {
        let mut config = crate::stage::quick_config(&Tables::default());
        config.delivery.handler_timeout = s(20);
        config.cluster.handover_timeout = s(30);
        config.cluster.heartbeat_interval = s(1);
        config.cluster.stale_instance_timeout = s(10);
        config.cluster.rebalance_interval = s(1);
        Self { pool: MemoryPool::new(), signals: Recorder::default(), config }
    }

    pub(crate) async fn outbox(&self, handlers: impl IntoIterator<Item = Registration>) -> Outbox<Memory> {
        self.builder().handlers(handlers).build().await.unwrap()
    }

    pub(crate) fn builder(&self) -> OutboxBuilder<Memory> {
        Outbox::builder(self.pool.clone()).config(self.config.clone()).observer(self.signals.clone())
    }

    pub(crate) async fn run(
        &self,
        handlers: impl IntoIterator<Item = Registration>,
    ) -> (Outbox<Memory>, Running) {
        let outbox = self.outbox(handlers).await;
        let running = outbox.start().await.unwrap();
        let granted = |signal: &Signal| matches!(signal, Signal::PartitionsGranted { .. }).then_some(());
        self.signals.first("partitions", granted).await;
        (outbox, running)
    }

    pub(crate) async fn schedule(&self, outbox: &Outbox<Memory>, events: &[Placed]) {
        outbox.transaction(async |tx| outbox.schedule_all(tx, events).await).await.unwrap();
    }

    fn lapses(&self) -> usize {
        self.signals.count(|signal| matches!(signal, Signal::LeaseLapsed))
    }

    async fn lapsed(&self) -> Instant {
        let lapsed = |signal: &Signal| matches!(signal, Signal::LeaseLapsed).then(Instant::now);
        self.signals.first("the lease to lapse", lapsed).await
    }
}

/// The lease is trusted for nine of the ten seconds, from the last beat with a reply.
#[tokio::test(start_paused = true)]
async fn without_beats_nothing_is_dispatched_until_one_is_answered() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    sleep(s(5)).await;
    // A failed beat is tried again after a fifth of the interval: twelve seconds without a reply.
    stage.pool.fail_next("beat", 60, Fault::NotApplied);
    let since = Instant::now();
    for number in 1..=200 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        sleep(Duration::from_millis(100)).await;
    }
    ledger.until_done(200).await;
    until_empty(&outbox).await;
    assert_eq!(stage.lapses(), 1);
    assert_eq!(ledger.assert_in_order(), 200);
    let began: Vec<Duration> = ledger.steps(Step::Began).iter().map(|entry| entry.at - since).collect();
    let between = |from: f64, to: f64| {
        let (from, to) = (Duration::from_secs_f64(from), Duration::from_secs_f64(to));
        began.iter().filter(|at| (from..to).contains(at)).count()
    };
    assert!(between(0.0, 7.9) >= 70, "it went on while the lease was good");
    assert_eq!(between(9.0, 12.0), 0, "it went on without a lease");
    assert!(between(12.0, 14.0) >= 40, "it did not go on at the first answer");
    assert!(running.shutdown().await.graceful);
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. } | Signal::PeerEvicted { .. });
    assert_eq!(stage.signals.count(evicted), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lapse_cancels_what_runs_and_counts_no_attempt() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let kept = ledger.clone();
    let slow = typed("bookkeeper", move |event: Placed, delivery| {
        let ledger = kept.clone();
        async move {
            ledger.push(Step::Began, &event, &delivery);
            sleep(s(10)).await;
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    let (outbox, running) = stage.run([slow]).await;
    stage.pool.fail_next("beat", 60, Fault::NotApplied);
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    let lapsed_at = stage.lapsed().await;
    // No wait may be longer than the limit, which is on the same clock.
    ledger.until(Step::Began, None, 2).await;
    ledger.until_done(1).await;
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    let began = ledger.steps(Step::Began);
    let attempts: Vec<(u32, u32)> =
        began.iter().map(|entry| (entry.event.number, entry.delivery.attempt)).collect();
    assert_eq!(attempts, [(1, 1), (1, 1), (2, 1)], "cancelled, then again, and nothing overtook it");
    assert!(began[0].at < lapsed_at && lapsed_at < began[1].at);
    assert_eq!(ledger.done_of("order-1"), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_lapse_is_told_even_when_there_is_nothing_to_do() {
    let stage = Paused::new();
    let (_outbox, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    assert_eq!(stage.lapses(), 0, "there was no lease yet, so none has lapsed");
    stage.pool.fail_next("beat", 60, Fault::NotApplied);
    stage.lapsed().await;
    running.shutdown().await;
}

/// The instance is silent for the others and alive for itself: it must stop before they take over.
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_beat_has_stopped_before_it_is_evicted() {
    let stage = Paused::new();
    let (first, second) = (Ledger::default(), Ledger::default());
    let (outbox, running) = stage.run([first.keeper("bookkeeper")]).await;
    let (other, joined) = stage.run([second.keeper("bookkeeper")]).await;
    sleep(s(5)).await;
    let (me, peer) = (running.instance(), joined.instance());
    let since = Instant::now();
    // Both heartbeats draw from the same faults. For a while neither instance can beat, and then one may
    // evict the other.
    stage.pool.fail_next("beat", 130, Fault::NotApplied);
    let mut number = 0;
    while since.elapsed() < s(40) {
        number += 1;
        let events: Vec<Placed> = (0..8).map(|key| placed(&format!("key-{key}"), number)).collect();
        stage.schedule(&outbox, &events).await;
        other.wake();
        sleep(Duration::from_millis(250)).await;
    }
    until_empty(&other).await;
    joined.shutdown().await;
    running.shutdown().await;
    assert!(stage.lapses() >= 2, "of {me} and {peer}");
    // Either instance may have delivered a number: each number was delivered once, in order.
    let mut done: Vec<_> = first.steps(Step::Done).into_iter().chain(second.steps(Step::Done)).collect();
    done.sort_by_key(|entry| entry.at);
    for key in 0..8 {
        let key = format!("key-{key}");
        let numbers: Vec<u32> =
            done.iter().filter(|entry| entry.event.key == key).map(|entry| entry.event.number).collect();
        assert_eq!(numbers, (1..=number).collect::<Vec<_>>(), "of {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_are_taken_over_after_the_stale_timeout_and_not_before() {
    let stage = Paused::new();
    let (first, second) = (Ledger::default(), Ledger::default());
    let (outbox, running) = stage.run([first.keeper("bookkeeper")]).await;
    sleep(s(5)).await;
    let dead = running.instance();
    drop(running);
    let since = Instant::now();
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let (other, joined) = stage.run([second.keeper("bookkeeper")]).await;
    second.until_done(3).await;
    let took = since.elapsed();
    assert!((s(10)..=s(13)).contains(&took), "took over after {took:?}");
    let silent_for = |signal: &Signal| match signal {
        Signal::PeerEvicted { instance, silent_for } if *instance == dead => *silent_for,
        _ => None,
    };
    assert!(stage.signals.first("the eviction", silent_for).await >= s(10));
    until_empty(&other).await;
    joined.shutdown().await;
    assert!(first.all().is_empty());
}

/// After an outage of the database every beat counter has stood still, so no instance is suspected.
#[tokio::test(start_paused = true)]
async fn an_outage_evicts_nobody() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let (other, joined) = stage.run([ledger.keeper("bookkeeper")]).await;
    sleep(s(5)).await;
    for (call, times) in [("beat", 300), ("view", 60), ("fetch by partition", 200), ("fetch due", 200)] {
        stage.pool.fail_next(call, times, Fault::NotApplied);
    }
    sleep(s(60)).await;
    stage.schedule(&outbox, &run_of("order-1", 5)).await;
    other.wake();
    ledger.until_done(5).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    joined.shutdown().await;
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. } | Signal::PeerEvicted { .. });
    assert_eq!(stage.signals.count(evicted), 0);
    assert!(stage.signals.count(|signal| matches!(signal, Signal::StoreFailed { .. })) > 100);
    assert_eq!(ledger.assert_in_order(), 5);
}

/// The connection for leaving is broken, but the database is back: the others need not wait for a timeout.
#[tokio::test(start_paused = true)]
async fn one_that_leaves_says_so_at_the_second_try() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (_, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let (_, joined) = stage.run([ledger.keeper("bookkeeper")]).await;
    sleep(s(5)).await;
    stage.pool.fail_next("leave", 2, Fault::NotApplied);
    running.shutdown().await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::Left { .. })), 1);
    sleep(s(60)).await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::PeerEvicted { .. })), 0);
    joined.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_start_that_waits_leaves_nothing_behind() {
    let stage = Paused::new();
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    stage.pool.fail_next("join", 20, Fault::NotApplied);
    let waited = tokio::time::timeout(s(30), outbox.start()).await;
    assert!(waited.is_err(), "joining has failed for more than a minute");
    sleep(s(600)).await;
    let joined = |signal: &Signal| matches!(signal, Signal::Joined { .. });
    assert_eq!(stage.signals.count(joined), 0, "workers that nobody holds");
}

/// Lists the records that it takes.
struct Fallback(Ledger);

impl keylane::FallbackHandler for Fallback {
    type Event = Placed;

    async fn handle(&self, event: Placed, failure: &keylane::Failure) -> Result<(), keylane::HandlerError> {
        self.0.push(Step::Done, &event, &failure.delivery);
        Ok(())
    }
}

/// Forty calls wait, a second instance asks for half of their partitions, and the calls fail after `wait`.
/// Returns the number of fallbacks that each of the two instances has called, and the number of handlers that
/// the second has called.
async fn fallbacks_of_a_handover(wait: Duration) -> (usize, usize, usize) {
    let stage = Paused::new();
    let (first, second, go_on) = (Ledger::default(), Ledger::default(), std::sync::Arc::new(Notify::new()));
    let failing = |ledger: &Ledger, wait: Option<&std::sync::Arc<Notify>>| {
        let (ledger, wait) = (ledger.clone(), wait.cloned());
        typed("bookkeeper", move |event: Placed, delivery| {
            let (ledger, wait) = (ledger.clone(), wait.clone());
            async move {
                ledger.push(Step::Began, &event, &delivery);
                if let Some(wait) = wait {
                    wait.notified().await;
                }
                Err(keylane::HandlerError::permanent("no"))
            }
        })
    };
    let fallback = |ledger: &Ledger| Registration::fallback("bookkeeper", Fallback(ledger.clone()));
    let (outbox, running) = stage.run([failing(&first, Some(&go_on)), fallback(&first)]).await;
    let events: Vec<Placed> = (0..40).map(|key| placed(&format!("key-{key}"), 1)).collect();
    stage.schedule(&outbox, &events).await;
    first.until(Step::Began, None, 40).await;
    let (_, joined) = stage.run([failing(&second, None), fallback(&second)]).await;
    sleep(wait).await;
    go_on.notify_waiters();
    until_empty(&outbox).await;
    running.shutdown().await;
    joined.shutdown().await;
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. } | Signal::PeerEvicted { .. });
    assert_eq!(stage.signals.count(evicted), 0);
    (first.steps(Step::Done).len(), second.steps(Step::Done).len(), second.steps(Step::Began).len())
}

/// A fallback follows its handler's call, although the partition is to be handed over meanwhile: a handover
/// repeats nothing.
#[tokio::test(start_paused = true)]
async fn a_handover_does_not_part_a_fallback_from_its_handler() {
    assert_eq!(fallbacks_of_a_handover(s(3)).await, (40, 0, 0));
}

/// If the others would wait too long, the fallback does not follow: each of the two calls may take twenty
/// seconds, and the others wait for twenty-five and the write.
#[tokio::test(start_paused = true)]
async fn a_fallback_is_left_to_the_next_owner_if_that_would_wait_too_long() {
    let (kept, handed_over, called) = fallbacks_of_a_handover(s(10)).await;
    assert_eq!(kept + handed_over, 40, "each once");
    assert!(handed_over > 10, "{handed_over} were left to the next owner");
    assert_eq!(called, handed_over);
}
