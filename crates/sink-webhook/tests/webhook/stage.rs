//! An outbox in memory with a sink.

use std::{future::Future, time::Duration};

use keylane::{
    Config, Observer, Outbox, RawEvent, Running, ScheduleError, ScheduleOptions, Signal,
    admin::Status,
    memory::{Memory, MemoryPool},
};
use keylane_webhook::{WebhookConfig, WebhookSink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) struct Stage {
    pub(crate) outbox: Outbox<Memory>,
    running: Running,
    signals: UnboundedReceiver<Signal>,
    /// All that were taken.
    pub(crate) seen: Vec<Signal>,
}

struct Signals(UnboundedSender<Signal>);

impl Observer for Signals {
    fn on(&self, signal: &Signal) {
        let _ = self.0.send(signal.clone());
    }
}

/// Settings for an endpoint in this process.
pub(crate) fn config() -> WebhookConfig {
    WebhookConfig::new()
        .secret(keylane_webhook::Secret::parse(SECRET).unwrap())
        .allow_http()
        .allow_network("127.0.0.0/8".parse().unwrap())
        .retry_after(Duration::from_millis(100))
}

impl Stage {
    pub(crate) async fn of(sink: WebhookSink) -> Self {
        let (sender, signals) = unbounded_channel();
        let outbox = Outbox::builder(MemoryPool::new())
            .config(Config::default())
            .handler(sink.registration("webhook"))
            .observer(Signals(sender))
            .build()
            .await
            .unwrap();
        outbox.migrate().await.unwrap();
        let running = outbox.start().await.unwrap();
        Self { outbox, running, signals, seen: Vec::new() }
    }

    /// Schedules them in one transaction, as `key`, `body`.
    pub(crate) async fn schedule(&self, events: impl IntoIterator<Item = (String, String)>) {
        let scheduled = self.outbox.transaction(async |tx| {
            for (key, body) in events {
                let event = RawEvent::new("order.placed", key, body);
                let options = ScheduleOptions::new().header("tenant", "acmé").header("host", "evil");
                self.outbox.schedule_raw(tx, event, options).await?;
            }
            Ok::<_, ScheduleError>(())
        });
        scheduled.await.unwrap();
    }

    pub(crate) async fn schedule_one(&self, body: &str) {
        self.schedule([("key-1".to_owned(), body.to_owned())]).await;
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

    /// Waits until nothing is to be delivered any more.
    pub(crate) async fn until_idle(&mut self) {
        let open = [Status::Pending, Status::Delayed];
        let idle = async {
            loop {
                let counts = self.outbox.admin().counts().await.unwrap();
                if open.iter().all(|status| counts.of(*status) == 0) {
                    // What has been told until now, and no test has waited for.
                    self.seen.extend(std::iter::from_fn(|| self.signals.try_recv().ok()));
                    return;
                }
                self.until(|signal| matches!(signal, Signal::Settled { .. })).await;
            }
        };
        bounded(idle).await;
    }

    /// The text of the record that fails for good.
    pub(crate) async fn failure(&mut self) -> String {
        self.until(|signal| matches!(signal, Signal::RecordFailed { .. })).await;
        match &self.seen[self.seen.len() - 1] {
            Signal::RecordFailed { error, .. } => error.clone(),
            _ => String::new(),
        }
    }

    pub(crate) fn counted_retries(&self) -> usize {
        self.seen.iter().filter(|signal| matches!(signal, Signal::RetryScheduled { .. })).count()
    }

    pub(crate) async fn end(self) {
        assert!(bounded(self.running.shutdown()).await.graceful);
    }
}

pub(crate) async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("nothing has come for a minute")
}
