//! In which words the macros refuse mistakes, and how they convert errors.
//!
//! After a change of a message, `TRYBUILD=overwrite cargo test -p keylane-macro-tests --test compile` writes
//! the `.stderr` files anew; read them as a user would before you commit them.

use std::{error::Error, fmt, time::Duration};

use keylane::{
    ClassifiedError, HandlerError,
    handler::convert::{Returned, ViaClassifiedError as _, ViaError as _, ViaHandlerError as _},
};

#[test]
fn mistakes_are_refused() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
}

#[derive(Debug)]
struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("busy")
    }
}

impl Error for Busy {}

impl ClassifiedError for Busy {
    fn class(&self) -> Option<&'static str> {
        Some("busy")
    }

    fn is_permanent(&self) -> bool {
        true
    }

    fn retry_after(&self) -> Option<Duration> {
        Some(Duration::from_secs(7))
    }
}

/// As the macros write it for a function's error of any type.
macro_rules! converted {
    ($error:expr) => {
        (&&&Returned::new($error)).into_handler_error()
    };
}

#[test]
fn a_classified_error_keeps_its_class() {
    let error = converted!(Busy);
    let fault = error.fault();
    assert_eq!((fault.class, fault.permanent), (Some("busy"), true));
    assert_eq!(fault.retry_after, Some(Duration::from_secs(7)));
}

#[test]
fn a_handler_error_is_kept_as_it_is() {
    let error = converted!(HandlerError::permanent("no such aircraft").class("unknown"));
    assert_eq!((error.fault().class, error.fault().permanent), (Some("unknown"), true));
    assert_eq!(error.text(100), "no such aircraft");
}

#[test]
fn any_other_error_has_no_class() {
    let error = converted!(fmt::Error);
    assert_eq!((error.fault().class, error.fault().permanent), (None, false));
}
