//! The guard around the user's code: each call ends as a result.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    task::{Unconstrained, unconstrained},
    time::{Sleep, sleep},
};

use super::{calls::BoxFuture, error::HandlerError};
use crate::unwind::caught;

/// Makes a call and runs it within its timeout. A panic becomes a failure with the text of the panic: a panic
/// before the future exists, in the future, or when the future is dropped at its timeout.
pub(crate) fn guarded<'a, T>(timeout: Duration, call: impl FnOnce() -> BoxFuture<'a, T>) -> Guarded<'a, T> {
    Guarded { call: Some(caught(call)), timeout, timer: None }
}

/// A call of the user's code under its guard. Small, because the place of a run has room for one.
pub(crate) struct Guarded<'a, T> {
    /// The future of the call, or the text of a panic before it existed. Taken by the drop.
    call: Option<Result<BoxFuture<'a, T>, String>>,
    /// The longest time of the call. Never changes.
    timeout: Duration,
    /// Set once the call waits: a call that never waits needs no timer. It has no part in tokio's budget of a
    /// task, so that a call that spends the whole budget each time is timed out, too.
    timer: Option<Pin<Box<Unconstrained<Sleep>>>>,
}

impl<T> Future for Guarded<'_, T> {
    type Output = Result<T, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, timeout, timer } = &mut *self;
        let polled = match call {
            Some(Ok(future)) => caught(|| future.as_mut().poll(context)),
            Some(Err(text)) => Err(std::mem::take(text)),
            None => return Poll::Pending,
        };
        match polled {
            Ok(Poll::Ready(returned)) => Poll::Ready(Ok(returned)),
            Ok(Poll::Pending) => {
                let timer = timer.get_or_insert_with(|| Box::pin(unconstrained(sleep(*timeout))));
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(HandlerError::timed_out(*timeout)))
            }
            Err(text) => Poll::Ready(Err(HandlerError::panicked(text))),
        }
    }
}

impl<T> Drop for Guarded<'_, T> {
    fn drop(&mut self) {
        let call = self.call.take();
        // The call has its result, or its result is no longer wanted.
        let _ = caught(move || drop(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::FailureKind;

    const LIMIT: Duration = Duration::from_secs(3);

    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_fails_at_its_timeout() {
        let hang = guarded::<()>(LIMIT, || Box::pin(std::future::pending())).await;
        assert_eq!(hang.unwrap_err().kind(), FailureKind::Timeout);
    }

    /// It never waits for anything but the others of its task.
    #[tokio::test]
    async fn a_call_that_is_busy_without_end_fails_at_its_timeout() {
        let busy = || -> BoxFuture<'_, ()> {
            Box::pin(async {
                loop {
                    tokio::task::consume_budget().await;
                }
            })
        };
        let called = guarded(Duration::from_millis(10), busy);
        let ended = tokio::time::timeout(Duration::from_secs(20), called).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), FailureKind::Timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_panics_when_it_is_dropped_has_timed_out() {
        let hang = guarded::<()>(LIMIT, || {
            Box::pin(async {
                let _held = PanicsInDrop;
                std::future::pending().await
            })
        });
        assert_eq!(hang.await.unwrap_err().kind(), FailureKind::Timeout);
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_its_text() {
        let in_the_future = guarded::<()>(LIMIT, || Box::pin(async { panic!("number {}", 7) })).await;
        assert_eq!(in_the_future.unwrap_err().to_string(), "panicked: number 7");
        let before_it = guarded::<()>(LIMIT, || panic!("number {}", 8)).await;
        assert_eq!(before_it.unwrap_err().kind(), FailureKind::Panic);
    }
}
