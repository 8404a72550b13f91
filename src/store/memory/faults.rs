//! Failures on demand, for tests of whatever must survive them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::store::{ErrorClass, StoreError};

/// How a call fails on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is done.
    NotApplied,
    /// It is done, but the answer is lost.
    LostReply,
    /// Nothing is done, and the call panics, as nothing in the library should.
    Panic,
}

/// The faults still to come, by call.
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
        StoreError::new(call, ErrorClass::Reconnect, self.text())
    }

    pub(super) fn raise(self) -> ! {
        std::panic::resume_unwind(Box::new(self.text()))
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotApplied => "connection lost before the call, as the test asked",
            Self::LostReply => "connection lost before the answer, as the test asked",
            Self::Panic => "a panic, as the test asked",
        }
    }
}
