//! Work beside a dispatcher.

use std::future::{Future, pending};

use tokio::task::JoinHandle;

use crate::wake::unhindered;

/// Work in a task of its own, so that decoding and encoding do not block a dispatcher. Dropping the task
/// cancels it.
pub(super) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(unhindered(work)))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the result of a task. Returns `None` if the task panicked. If there is no task, never returns.
pub(super) async fn result_of<T>(task: &mut Option<Task<T>>) -> Option<T> {
    match task {
        Some(Task(handle)) => handle.await.ok(),
        None => pending().await,
    }
}
