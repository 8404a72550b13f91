//! Catching panics of the user's code, which may panic anywhere.
//!
//! A panic while another one unwinds, and any panic under `panic = "abort"`, ends the process: no library can
//! catch these.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use futures::FutureExt;

/// Runs `call`.
///
/// # Errors
/// The text of the panic, if `call` panics.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(text_of)
}

/// Runs a future as [`caught`] runs a call.
pub(crate) async fn outlived<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(text_of)
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("panicked: {}", text.unwrap_or("no text"));
    // The payload of the panic is the user's, too: its drop may panic.
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
        std::mem::forget(second);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsAsItGoes;

    impl Drop for PanicsAsItGoes {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }

    #[test]
    fn a_panic_becomes_its_text() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught::<()>(|| panic!("number {}", 7)), Err("panicked: number 7".to_owned()));
        let thrown = caught::<()>(|| std::panic::panic_any(PanicsAsItGoes));
        assert_eq!(thrown, Err("panicked: no text".to_owned()));
    }
}
