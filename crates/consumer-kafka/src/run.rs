//! Calls of the user's code, which may panic or never return.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use keylane::HandlerError;

/// Runs a call within a time limit. A panic becomes an error.
pub(crate) async fn guarded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => Err(HandlerError::new(text_of(panic)).class("panic")),
        Err(_) => {
            let text = format!("no result within {} ms", limit.as_millis());
            Err(HandlerError::new(text).class("timeout"))
        }
    }
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("panicked: {}", text.unwrap_or("no text"));
    // The payload of the panic is the user's, too, and may panic when it is dropped.
    if let Err(second) = std::panic::catch_unwind(AssertUnwindSafe(move || drop(panic))) {
        std::mem::forget(second);
    }
    text
}
