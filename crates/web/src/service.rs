//! The code that the services of all guards share.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
};

use futures::FutureExt;

/// The future of a guard's service.
pub(crate) type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Takes the service that is ready, and leaves a clone, which is not, as tower's services do.
pub(crate) fn exchange<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    std::mem::replace(service, clone)
}

/// The code behind a guard has panicked. The text of the panic is not kept: the panic hook has printed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Runs a future that may panic.
///
/// # Errors
/// [`Panicked`].
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(discard)
}

/// The value of the panic is the user's, too, so its drop may panic.
fn discard(thrown: Box<dyn Any + Send>) -> Panicked {
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(thrown))) {
        std::mem::forget(second);
    }
    Panicked
}
