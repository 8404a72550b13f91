//! Workers that run, as their service holds them.

use tokio::{sync::watch, task::JoinHandle};

use crate::{
    instance::InstanceId,
    telemetry::{Observers, Signal},
};

/// What a shutdown came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Everything in flight was finished and handed over in time.
    pub graceful: bool,
    /// Records that were in flight, whose handlers were cancelled or not called any more; another
    /// instance delivers them again.
    pub cancelled: usize,
}

/// The workers of an outbox. Dropping it stops them at once, as a crash would: the others take over
/// after `cluster.stale_instance_timeout`, and the log says so. [`shutdown`](Self::shutdown) hands over
/// at once.
#[must_use = "dropping this stops delivery at once: keep it, and call `shutdown` in the end"]
pub struct Running {
    /// Who is told if this is dropped while the workers run.
    pub(crate) observers: Observers,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) task: JoinHandle<ShutdownReport>,
    pub(crate) instance: watch::Receiver<InstanceId>,
}

impl Running {
    /// Finishes what is in flight, hands the partitions over and leaves, within
    /// `cluster.graceful_shutdown_timeout`; then cancels the rest.
    pub async fn shutdown(mut self) -> ShutdownReport {
        let _ = self.stop.send(true);
        (&mut self.task).await.unwrap_or(ShutdownReport { graceful: false, cancelled: 0 })
    }

    /// Who this process is in the cluster now; new after an eviction.
    pub fn instance(&self) -> InstanceId {
        *self.instance.borrow()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.task.is_finished() {
            self.task.abort();
            self.observers.emit(Signal::WorkersDropped { instance: self.instance() });
        }
    }
}
