//! Converts the error that a function returned into a [`HandlerError`], for the macros.
//!
//! A function may return [`HandlerError`] itself, an error that implements [`ClassifiedError`], or
//! any other error. Method lookup prefers the first of these three traits that applies to
//! `&&&Returned(error)`, so no annotation is needed:
//!
//! ```
//! use keylane::handler::convert::{Returned, ViaClassifiedError as _, ViaError as _, ViaHandlerError as _};
//! let error = (&&&Returned::new(std::fmt::Error)).into_handler_error();
//! assert_eq!(error.kind(), keylane::handler::FailureKind::Error);
//! ```

#![expect(clippy::wrong_self_convention, reason = "method lookup by reference is what chooses the trait")]

use std::{cell::RefCell, error::Error};

use super::error::{ClassifiedError, HandlerError};

/// An error that the user's function returned. It is taken out once.
#[derive(Debug)]
pub struct Returned<E>(RefCell<Option<E>>);

impl<E> Returned<E> {
    /// Wraps a returned error.
    pub fn new(error: E) -> Self {
        Self(RefCell::new(Some(error)))
    }

    fn convert(&self, convert: impl FnOnce(E) -> HandlerError) -> HandlerError {
        match self.0.borrow_mut().take() {
            Some(error) => convert(error),
            None => HandlerError::new("error already converted"),
        }
    }
}

/// The function returned a [`HandlerError`].
pub trait ViaHandlerError {
    /// The error itself.
    fn into_handler_error(&self) -> HandlerError;
}

impl ViaHandlerError for &&Returned<HandlerError> {
    fn into_handler_error(&self) -> HandlerError {
        self.convert(|error| error)
    }
}

/// The function returned an error that implements [`ClassifiedError`].
pub trait ViaClassifiedError {
    /// The error with its class, permanence and delay.
    fn into_handler_error(&self) -> HandlerError;
}

impl<E: ClassifiedError> ViaClassifiedError for &Returned<E> {
    fn into_handler_error(&self) -> HandlerError {
        self.convert(HandlerError::classified)
    }
}

/// The function returned any other error, such as a boxed error or a text.
pub trait ViaError {
    /// The error without a class.
    fn into_handler_error(&self) -> HandlerError;
}

impl<E: Into<Box<dyn Error + Send + Sync>>> ViaError for Returned<E> {
    fn into_handler_error(&self) -> HandlerError {
        self.convert(HandlerError::new)
    }
}
