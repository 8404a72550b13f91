//! Panics: those of the user's code are intended, all others are bugs of the library.

use std::{
    any::Any,
    cell::RefCell,
    error::Error,
    fmt,
    panic::{self, resume_unwind},
    sync::{Arc, Once},
};

use keylane_checker::What;

use crate::{node::Process, shared::Shared};

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

/// An error whose texts panic, and which panics as it is dropped.
pub(crate) struct Unspeakable(Arc<Shared>);

impl Unspeakable {
    pub(crate) fn of(process: &Process) -> Self {
        Self(Arc::clone(&process.world))
    }
}

impl Error for Unspeakable {}

impl fmt::Debug for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panicking("the debug text of an error")
    }
}

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.recorder.note("world", What::Saw { what: "error text panicked".to_owned() });
        panicking("the text of an error")
    }
}

impl Drop for Unspeakable {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panicking("an error, as it was dropped");
        }
    }
}
