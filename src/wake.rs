//! Wake-ups that no thread keeps to itself: code of the user may block the thread that has woken a task.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Notify,
    task::coop::has_budget_remaining,
};

/// A nudge that says that there may be work. Many nudges before a wait count as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Wake {
    /// Code of the user may run next on this thread, and block it.
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

/// Runs work that stands still on no account because another task blocks a thread.
///
/// A task that has used up its budget of operations returns to tokio, which keeps the wake-up on the thread until this
/// thread has no other task. If one of the others blocks, the wake-up waits. A task that has woken itself is in the
/// queue, which all threads share.
pub(crate) async fn unhindered<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() && !has_budget_remaining() {
            context.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// Lets other tasks run first. tokio's `yield_now` keeps the wake-up on the thread, too.
pub(crate) async fn yield_to_others() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// `work` spawns a task that blocks until `work` has ended. This task is the next one on the thread of `work`.
    fn goes_on_on_another_thread(work: impl Future<Output = ()> + Send + 'static) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (ends, ended) = channel();
        let (tells, told) = channel();
        runtime.spawn(async move {
            tokio::spawn(async move { tells.send(ended.recv_timeout(LIMIT)) });
            work.await;
            ends.send(())
        });
        told.recv_timeout(2 * LIMIT).unwrap().expect("the work has ended");
    }

    #[test]
    fn a_task_without_budget_goes_on_although_the_next_task_blocks_the_thread() {
        goes_on_on_another_thread(unhindered(async {
            for _ in 0..1000 {
                tokio::task::coop::consume_budget().await;
            }
        }));
    }

    #[test]
    fn a_task_that_yields_goes_on_although_the_next_task_blocks_the_thread() {
        goes_on_on_another_thread(async {
            for _ in 0..10 {
                yield_to_others().await;
            }
        });
    }

    /// The task that nudges blocks its thread until the task that waits has run.
    pub(crate) fn runs_although_the_thread_of_the_nudge_blocks(
        runtime: &tokio::runtime::Runtime,
        waits: impl Future<Output = ()> + Send + 'static,
        nudge: impl FnOnce() + Send + 'static,
    ) {
        let ((tells, told), (begins, begun)) = (channel(), channel());
        runtime.spawn(async move {
            begins.send(()).unwrap();
            waits.await;
            tells.send(())
        });
        begun.recv_timeout(LIMIT).unwrap();
        let nudges = runtime.spawn(async move {
            nudge();
            told.recv_timeout(LIMIT)
        });
        runtime.block_on(nudges).unwrap().unwrap();
    }

    #[test]
    fn the_task_that_a_nudge_wakes_runs_although_the_thread_of_the_nudge_blocks() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let wake = Wake::default();
        let waits = wake.clone();
        runs_although_the_thread_of_the_nudge_blocks(
            &runtime,
            async move { waits.nudged().await },
            move || wake.nudge(),
        );
    }
}
