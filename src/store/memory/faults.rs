//! Failures on demand, for tests of the code that must survive them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::store::{ErrorClass, StoreError};

/// How a call fails on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The work is not done.
    NotApplied,
    /// The work is not done, because it conflicts with that of another transaction, as after a deadlock.
    Conflict,
    /// The work is done, but the reply is lost.
    LostReply,
    /// The work is not done, and the call panics, which no call of the library should do.
    Panic,
}

/// The faults still to come, by the name of the call.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<HashMap<String, VecDeque<Fault>>>);

impl Faults {
    pub(super) fn add(&self, call: &str, times: usize, fault: Fault) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.entry(call.to_owned()).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// Takes the next fault of a call.
    pub(super) fn next(&self, call: &str) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(call)?.pop_front()
    }
}

impl Fault {
    pub(super) fn error(self, call: &'static str) -> StoreError {
        let class = if self == Self::Conflict { ErrorClass::Retry } else { ErrorClass::Reconnect };
        StoreError::new(call, class, self.text())
    }

    pub(super) fn raise(self) -> ! {
        std::panic::resume_unwind(Box::new(self.text()))
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotApplied => "connection lost before the call, as the test asked",
            Self::Conflict => "a conflict with another transaction, as the test asked",
            Self::LostReply => "connection lost before the answer, as the test asked",
            Self::Panic => "a panic, as the test asked",
        }
    }
}
