//! The guard around the user's code: each call ends as a result.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{calls::BoxFuture, error::HandlerError};
use crate::unwind::caught;

/// Makes a call and runs it within its timeout. A panic becomes a failure with the text of the panic: a panic
/// before the future exists, in the future, or when the future is dropped at its timeout.
pub(crate) async fn guarded<'a, T>(
    timeout: Duration,
    call: impl FnOnce() -> BoxFuture<'a, T>,
) -> Result<T, HandlerError> {
    let mut call = Contained(Some(caught(call).map_err(HandlerError::panicked)?));
    // A call that never waits needs no timer.
    let returned = match futures::poll!(&mut call) {
        Poll::Ready(returned) => Ok(returned),
        Poll::Pending => Box::pin(tokio::time::timeout(timeout, &mut call)).await,
    };
    returned.unwrap_or_else(|_| Err(HandlerError::timed_out(timeout)))
}

/// A future of the user whose panics are caught.
struct Contained<'a, T>(Option<BoxFuture<'a, T>>);

impl<T> Future for Contained<'_, T> {
    type Output = Result<T, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        match caught(|| future.as_mut().poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(text) => Poll::Ready(Err(HandlerError::panicked(text))),
        }
    }
}

impl<T> Drop for Contained<'_, T> {
    fn drop(&mut self) {
        let future = self.0.take();
        // The call has its result, or its result is no longer wanted.
        let _ = caught(move || drop(future));
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
