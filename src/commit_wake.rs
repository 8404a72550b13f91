//! The wake-up of the workers after a commit, which the code of the user sends before it goes on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use tokio::sync::Notify;

/// A nudge that says that there may be work. Many nudges before a wait count as one.
///
/// The thread that nudges may block next, and tokio keeps the task that it woke (see
/// [`offer_woken_task`](crate::wake::offer_woken_task)). To offer that task to another thread would take 0.04 ms
/// of the delivery of a record (two cores, `bench latency --rates 100`). Therefore a nudge wakes a small task, the
/// *relay*, which then wakes the workers. If the thread blocks before the relay has run, the workers still sleep,
/// and the ticker wakes them from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitWake(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whether a nudge has not reached the workers yet. Set by `nudge`, cleared by `pass_on`.
    waits: AtomicBool,
    relay: Notify,
    workers: Notify,
}

impl CommitWake {
    pub(crate) fn nudge(&self) {
        self.0.waits.store(true, SeqCst);
        self.0.relay.notify_one();
    }

    /// Wakes the workers if there was a nudge since the last call.
    pub(crate) fn pass_on(&self) {
        if self.0.waits.swap(false, SeqCst) {
            self.0.workers.notify_one();
        }
    }

    /// The work of the relay. Never ends.
    pub(crate) async fn relay(self) {
        loop {
            self.0.relay.notified().await;
            self.pass_on();
        }
    }

    /// Returns at once if a nudge was passed on since the last return. Cancel safe.
    pub(crate) async fn nudged(&self) {
        self.0.workers.notified().await;
    }
}
