//! Histories by hand, event by event.

use keylane_checker::{
    CallKind, Called, End, Event, Expect, Invariant, Judge, Repeats, Report, Status, Truth, Violation, What,
};
use uuid::Uuid;

/// A history that grows. Each event is a nanosecond after the one before.
#[derive(Default)]
pub(crate) struct Script(pub(crate) Vec<Event>);

impl Script {
    pub(crate) fn then(mut self, what: What) -> Self {
        let at = self.0.len() as u64;
        self.0.push(Event { at, process: "hand".to_owned(), what });
        self
    }

    /// The time of the last event.
    pub(crate) fn now(&self) -> u64 {
        (self.0.len() as u64).saturating_sub(1)
    }

    /// One transaction per event, each committed before the next is scheduled.
    pub(crate) fn scheduled(self, events: u64) -> Self {
        (1..=events).fold(self, |script, event| script.scheduling(event).committed(event))
    }

    pub(crate) fn scheduling(self, event: u64) -> Self {
        let (call, tx, id) = (event, event, Uuid::from_u128(event.into()));
        let (key, handlers) = ("key".to_owned(), vec!["worker".to_owned()]);
        self.then(What::Scheduling { call, tx, event: id, key, handlers, delayed: false })
    }

    pub(crate) fn committed(self, tx: u64) -> Self {
        self.then(What::Committing { tx }).then(What::Committed { tx })
    }

    pub(crate) fn stored(self, id: i64) -> Self {
        let (event, handler, key) = (Uuid::from_u128(id as u128), "worker".to_owned(), "key".to_owned());
        self.then(What::Stored { id, event, handler, key, partition: 7, status: Status::Pending })
    }

    pub(crate) fn changed(self, id: i64, status: Status) -> Self {
        self.then(What::Changed { id, status, attempts: 0, by: None })
    }

    pub(crate) fn begin(self, call: u64, instance: &str, event: u64, generation: i64) -> Self {
        let (handler, key) = ("worker".to_owned(), "key".to_owned());
        let id = Uuid::from_u128(event.into());
        let called =
            Called { id: event as i64, event: id, handler, key, partition: 7, generation, attempt: 1 };
        let (instance, kind) = (instance.to_owned(), CallKind::Single);
        self.then(What::CallBegan { call, instance, kind, records: vec![called] })
    }

    pub(crate) fn claim(self, instance: &str, generation: i64) -> Self {
        self.then(What::Claimed { partition: 7, instance: instance.to_owned(), generation })
    }

    pub(crate) fn joined(self, instances: &[&str]) -> Self {
        instances
            .iter()
            .fold(self, |script, instance| script.then(What::Joined { instance: (*instance).to_owned() }))
    }

    pub(crate) fn end(self, call: u64, end: End) -> Self {
        self.then(What::CallEnded { call, ends: vec![end] })
    }

    pub(crate) fn called(self, call: u64, instance: &str, event: u64, generation: i64) -> Self {
        self.begin(call, instance, event, generation).end(call, End::Ok)
    }

    pub(crate) fn fault(self, fault: &str, instance: &str) -> Self {
        self.then(What::FaultBegan { fault: fault.to_owned(), instance: Some(instance.to_owned()) })
    }

    pub(crate) fn judged(self, expect: Expect) -> Result<Report, Violation> {
        let mut judge = Judge::new(expect);
        self.then(What::Finished).0.iter().try_for_each(|event| judge.take(event))?;
        judge.finish()
    }

    /// The number under which this history of processes is caught.
    pub(crate) fn caught(self) -> Option<Invariant> {
        self.judged(processes()).err().map(|violation| violation.invariant)
    }
}

pub(crate) fn processes() -> Expect {
    Expect { truth: Truth::Calls, repeats: Repeats::Explained, ownership: false, ..Expect::default() }
}
