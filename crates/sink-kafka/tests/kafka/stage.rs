//! An outbox in memory with a sink on the real broker.

use std::{collections::BTreeMap, future::Future, sync::Mutex, time::Duration};

use keylane::{
    Config, Observer, Outbox, RawEvent, Registration, Running, ScheduleError, ScheduleOptions, Signal,
    admin::Status,
    memory::{Memory, MemoryPool},
};
use keylane_kafka::{KafkaConfig, KafkaSink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::broker;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Stage {
    pub(crate) outbox: Outbox<Memory>,
    running: Running,
    signals: UnboundedReceiver<Signal>,
    /// All that were taken.
    seen: Vec<Signal>,
    scheduled: Mutex<BTreeMap<[String; 3], Identity>>,
}

/// What a consumer knows a record by, whatever becomes of it on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) event_id: String,
    pub(crate) traceparent: String,
}

struct Signals(UnboundedSender<Signal>);

impl Observer for Signals {
    fn on(&self, signal: &Signal) {
        let _ = self.0.send(signal.clone());
    }
}

pub(crate) fn sink(change: impl FnOnce(KafkaConfig) -> KafkaConfig) -> KafkaSink {
    KafkaSink::new(change(KafkaConfig::new(broker::address()))).unwrap()
}

impl Stage {
    pub(crate) async fn of(registrations: impl IntoIterator<Item = Registration>) -> Self {
        let (sender, signals) = unbounded_channel();
        let outbox = Outbox::builder(MemoryPool::new())
            .config(Config::default())
            .handlers(registrations)
            .observer(Signals(sender))
            .build()
            .await
            .unwrap();
        outbox.migrate().await.unwrap();
        let running = outbox.start().await.unwrap();
        Self { outbox, running, signals, seen: Vec::new(), scheduled: Mutex::default() }
    }

    /// The identity that the record of this type, key and body was scheduled with.
    pub(crate) fn identity(&self, record: [&str; 3]) -> Identity {
        self.scheduled.lock().unwrap()[&record.map(str::to_owned)].clone()
    }

    /// Schedules them in one transaction, each in a trace of its own.
    pub(crate) async fn schedule(
        &self,
        record_type: &str,
        events: impl IntoIterator<Item = (String, String)>,
    ) {
        let scheduled = self.outbox.transaction(async |tx| {
            for (key, body) in events {
                let traceparent = format!("00-{:032x}-{:016x}-01", self.known() + 1, 1);
                let event = RawEvent::new(record_type, key.clone(), body.clone());
                let options = ScheduleOptions::new().header("traceparent", traceparent.clone());
                let event_id = self.outbox.schedule_raw(tx, event, options).await?.event_id.to_string();
                let identity = Identity { event_id, traceparent };
                let earlier =
                    self.scheduled.lock().unwrap().insert([record_type.to_owned(), key, body], identity);
                assert_eq!(earlier, None, "type, key and body tell a record");
            }
            Ok::<_, ScheduleError>(())
        });
        scheduled.await.unwrap();
    }

    fn known(&self) -> usize {
        self.scheduled.lock().unwrap().len()
    }

    /// Waits for a signal like this.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Signal) -> bool) {
        let found = async {
            loop {
                let signal = self.signals.recv().await.expect("the workers are gone");
                self.seen.push(signal);
                if wanted(&self.seen[self.seen.len() - 1]) {
                    return;
                }
            }
        };
        bounded(found).await;
    }

    /// Waits until these many outcomes are durable.
    pub(crate) async fn until_settled(&mut self, records: usize) {
        while self.settled() < records {
            self.until(|signal| matches!(signal, Signal::Settled { .. })).await;
        }
    }

    pub(crate) fn settled(&self) -> usize {
        let settled = self.seen.iter().map(|signal| match signal {
            Signal::Settled { records } => *records,
            _ => 0,
        });
        settled.sum()
    }

    /// Waits until nothing is to be delivered any more, but for what a failed record holds.
    pub(crate) async fn until_idle(&mut self) {
        self.until_none(&[Status::Pending, Status::Delayed]).await;
    }

    /// As [`until_idle`](Self::until_idle), with what is held: a long lane that goes on returns in steps.
    pub(crate) async fn until_all_delivered(&mut self) {
        self.until_none(&[Status::Pending, Status::Delayed, Status::Held]).await;
    }

    async fn until_none(&mut self, open: &[Status]) {
        loop {
            let counts = self.outbox.admin().counts().await.unwrap();
            if open.iter().all(|status| counts.of(*status) == 0) {
                return;
            }
            self.until(|signal| matches!(signal, Signal::Settled { .. })).await;
        }
    }

    /// Takes the signals that are there.
    pub(crate) fn catch_up(&mut self) {
        while let Ok(signal) = self.signals.try_recv() {
            self.seen.push(signal);
        }
    }

    /// Shuts the workers down. Only then all signals have come.
    pub(crate) async fn end(mut self) -> Told {
        assert!(bounded(self.running.shutdown()).await.graceful);
        self.seen.extend(std::iter::from_fn(|| self.signals.try_recv().ok()));
        Told(self.seen)
    }

    /// As [`end`](Self::end), and no attempt has counted and no record has failed.
    pub(crate) async fn end_without_failure(self) {
        let told = self.end().await;
        assert_eq!((told.failures(), told.counted_retries()), (Vec::new(), 0));
    }
}

/// All signals of a stage.
pub(crate) struct Told(Vec<Signal>);

impl Told {
    /// The texts of the records that have failed for good.
    pub(crate) fn failures(&self) -> Vec<&str> {
        let failed = self.0.iter().filter_map(|signal| match signal {
            Signal::RecordFailed { error, .. } => Some(error.as_str()),
            _ => None,
        });
        failed.collect()
    }

    pub(crate) fn counted_retries(&self) -> usize {
        self.count(|signal| matches!(signal, Signal::RetryScheduled { .. }))
    }

    pub(crate) fn count(&self, is: impl Fn(&Signal) -> bool) -> usize {
        self.0.iter().filter(|signal| is(signal)).count()
    }
}

pub(crate) async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("nothing has come for two minutes")
}

/// Records from `from` to `to` of each key, key by key in turns.
pub(crate) fn in_turns(keys: usize, from: usize, to: usize) -> impl Iterator<Item = (String, String)> {
    (from..to).flat_map(move |number| (0..keys).map(move |key| (format!("key-{key}"), number.to_string())))
}

pub(crate) fn numbers(to: usize) -> Vec<String> {
    (0..to).map(|number| number.to_string()).collect()
}
