//! A nudge that says that there may be work. Nudges coalesce.

use std::sync::Arc;

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Notify,
};

/// A nudge. Many nudges before a wait count as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Wake {
    /// Code of the user may nudge, and block its thread directly after that.
    pub(crate) fn nudge(&self) {
        self.0.notify_one();
        offer_woken_task();
    }

    /// Returns at once if there was a nudge since the last return. Cancel safe.
    pub(crate) async fn nudged(&self) {
        self.0.notified().await;
    }
}

/// Offers the task that this thread has just woken to the other threads of the runtime.
///
/// tokio reserves a woken task for the thread that woke it (the *LIFO slot* of that thread), and no other thread may
/// take it. If this thread blocks next, as code of the user may, the woken task waits until the thread goes on. A task
/// that is spawned now takes that slot, and the woken one moves to the queue, which all threads share.
pub(crate) fn offer_woken_task() {
    if let Ok(runtime) = Handle::try_current()
        && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
    {
        drop(runtime.spawn(async {}));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// The task that nudges blocks its thread until the other task has run.
    #[test]
    fn the_task_that_a_nudge_wakes_runs_although_the_thread_of_the_nudge_blocks() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let wake = Wake::default();
        let ((tells, told), (begins, begun)) = (channel(), channel());
        let waits = wake.clone();
        runtime.spawn(async move {
            begins.send(()).unwrap();
            waits.nudged().await;
            tells.send(())
        });
        begun.recv_timeout(LIMIT).unwrap();
        let nudges = runtime.spawn(async move {
            wake.nudge();
            told.recv_timeout(LIMIT)
        });
        runtime.block_on(nudges).unwrap().unwrap();
    }
}
