//! tokio's budget of operations, without a standstill at its end. `keylane` has the same rule in `src/wake.rs`, which is
//! not public.

use std::{
    future::{Future, poll_fn},
    pin::pin,
};

use tokio::task::coop::has_budget_remaining;

/// Runs work that stands still on no account because another task blocks a thread.
///
/// A task that has used up its budget returns to tokio, which keeps the wake-up on the thread until this thread has no
/// other task. If one of the others blocks, as a handler may, the wake-up waits. A task that has woken itself is in the
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

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// The task spawns another one, which is the next on its thread and blocks until the task has ended.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_without_budget_goes_on_although_the_next_task_blocks_the_thread() {
        let ((ends, ended), (tells, told)) = (channel(), channel());
        tokio::spawn(unhindered(async move {
            tokio::spawn(async move { tells.send(ended.recv_timeout(LIMIT)) });
            for _ in 0..1000 {
                tokio::task::coop::consume_budget().await;
            }
            ends.send(())
        }));
        told.recv_timeout(2 * LIMIT).unwrap().expect("the task has ended");
    }
}
