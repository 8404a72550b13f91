//! Panics: those of the user's code are wanted, all others are faults of the library.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, resume_unwind},
    sync::Once,
};

thread_local! {
    static UNWANTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic of the user's code. It does not come to the hook.
pub(crate) fn panicking(who: &str) -> ! {
    let payload: Box<dyn Any + Send> = Box::new(format!("{who} panics, as the simulation wants"));
    resume_unwind(payload)
}

/// From now on, unwanted panics are noted.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            UNWANTED
                .with_borrow_mut(|unwanted| *unwanted = unwanted.take().or_else(|| Some(info.to_string())));
        }));
    });
}

/// The first panic on this thread since the last time.
pub(crate) fn take() -> Option<String> {
    UNWANTED.take()
}
