//! Records all events and has them judged at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_checker::{Event, Expect, Judge, Report, Violation, What};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::time::Time;

/// The history of one world.
#[derive(Debug)]
pub(crate) struct Recorder {
    time: Arc<Time>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    judge: Judge,
    violation: Option<Violation>,
    last: u64,
    count: u64,
    /// The hash of all lines, if it is asked for.
    hash: Option<u64>,
    /// All lines, if they are asked for.
    events: Option<Vec<Event>>,
}

/// What to keep in addition to the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing.
    #[default]
    Verdict,
    /// A number that is the same for equal histories.
    Hash,
    /// The history.
    Events,
}

impl Recorder {
    pub(crate) fn new(time: Arc<Time>, expect: Expect, keep: Keep) -> Self {
        let inner = Inner {
            judge: Judge::new(expect),
            violation: None,
            last: 0,
            count: 0,
            hash: (keep != Keep::Verdict).then_some(0),
            events: (keep == Keep::Events).then(Vec::new),
        };
        Self { time, inner: Mutex::new(inner) }
    }

    /// Records an event and returns its time. No two events have the same time.
    pub(crate) fn note(&self, process: &str, what: What) -> u64 {
        let mut inner = self.inner();
        let at = self.time.now().max(inner.last + 1);
        inner.last = at;
        inner.take(&Event { at, process: process.to_owned(), what });
        at
    }

    /// Keeps a bug of the library that no event shows.
    pub(crate) fn object(&self, violation: Violation) {
        self.inner().violation.get_or_insert(violation);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.inner().violation.is_some()
    }

    /// Ends the history.
    pub(crate) fn finish(&self) -> Finished {
        let judge = Judge::new(Expect::default());
        let ended = Inner { judge, violation: None, last: 0, count: 0, hash: None, events: None };
        let inner = std::mem::replace(&mut *self.inner(), ended);
        let verdict = match inner.violation {
            Some(violation) => Err(violation),
            None => inner.judge.finish(),
        };
        Finished { verdict, count: inner.count, hash: inner.hash, events: inner.events.unwrap_or_default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of a recorder.
pub(crate) struct Finished {
    pub(crate) verdict: Result<Report, Violation>,
    pub(crate) count: u64,
    pub(crate) hash: Option<u64>,
    pub(crate) events: Vec<Event>,
}

impl Inner {
    fn take(&mut self, event: &Event) {
        self.count += 1;
        if let Some(hash) = &mut self.hash {
            let line = serde_json::to_vec(event).unwrap_or_default();
            *hash = xxh3_64_with_seed(&line, *hash);
        }
        if let Some(events) = &mut self.events {
            events.push(event.clone());
        }
        if self.violation.is_none()
            && let Err(violation) = self.judge.take(event)
        {
            self.violation = Some(violation);
        }
    }
}
