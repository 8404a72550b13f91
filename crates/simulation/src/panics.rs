//! Panics: those of the user's code are intended, all others are bugs of the library.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, resume_unwind},
    sync::Once,
};

thread_local! {
    static UNWANTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics as the user's code. The panic does not reach the hook.
pub(crate) fn panicking(who: &str) -> ! {
    let payload: Box<dyn Any + Send> = Box::new(format!("{who} panics, as the simulation wants"));
    resume_unwind(payload)
}

/// Begins to note panics that are not intended.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            UNWANTED
                .with_borrow_mut(|unwanted| *unwanted = unwanted.take().or_else(|| Some(info.to_string())));
        }));
    });
}

/// Takes the first panic on this thread since the last call.
pub(crate) fn take() -> Option<String> {
    UNWANTED.take()
}
