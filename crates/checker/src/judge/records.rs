//! Records without an end.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{Judge, line::Line, names::Name, writers::Written};
use crate::{Called, End, Status, What};

/// Key and handler, whose records come one after another.
pub(super) type Lane = (Name, Name);

/// The state of a record's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Never called.
    New,
    /// Being called by the owner.
    Running,
    /// The last call was cut off: its effect is unknown.
    Interrupted,
    /// The last call has failed.
    Failed,
    /// The last call has succeeded.
    Done,
    /// A call has succeeded under an earlier owner, who did not make the outcome durable.
    Redo,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) id: i64,
    /// The id of the record in calls.
    pub(super) called_id: Option<i64>,
    pub(super) event: Uuid,
    pub(super) lane: Lane,
    pub(super) partition: Option<u16>,
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) state: State,
    /// The last call of an owner, with its instance, generation and attempt.
    pub(super) call: Option<u64>,
    pub(super) instance: Name,
    pub(super) generation: i64,
    pub(super) attempt: u32,
    pub(super) end: Option<End>,
    pub(super) stored: Option<Line>,
    pub(super) changed: Option<Line>,
    pub(super) began: Option<Line>,
    pub(super) ended: Option<Line>,
    /// Whether a failover has undone a change since its last call began: a retry then follows an earlier failure.
    pub(super) turned_back: bool,
    pub(super) failures: u32,
    pub(super) unavailable: u32,
    pub(super) crashes: u32,
    /// Instances whose calls have succeeded.
    pub(super) succeeded: Vec<Name>,
    pub(super) by_fallback: bool,
    /// Whether it is scheduled for later and was not called yet: it then has no place in the order.
    pub(super) delayed: bool,
    /// Whether it was scheduled for later: once due, it comes before pending records.
    pub(super) later: bool,
    /// A later record that was called after this one's last failure, which must then be its last.
    pub(super) overtaken: Option<Line>,
    /// Whether no record waits for it, because a failover has lost its end or its lane went on without it.
    pub(super) exempt: bool,
    /// The line of a person's action that is not done yet.
    pub(super) person: Option<Line>,
}

impl Record {
    pub(super) fn new(id: i64, event: Uuid, lane: Lane, status: Status) -> Self {
        Self {
            id,
            called_id: None,
            event,
            lane,
            partition: None,
            status,
            attempts: 0,
            state: State::New,
            call: None,
            instance: 0,
            generation: 0,
            attempt: 0,
            end: None,
            stored: None,
            changed: None,
            began: None,
            ended: None,
            turned_back: false,
            failures: 0,
            unavailable: 0,
            crashes: 0,
            succeeded: Vec::new(),
            by_fallback: false,
            delayed: status == Status::Delayed,
            later: status == Status::Delayed,
            overtaken: None,
            exempt: false,
            person: None,
        }
    }

    /// The number in messages: the id in the database, if it is known.
    pub(super) fn number(&self) -> i64 {
        self.called_id.unwrap_or(self.id)
    }

    /// The lines that show the life of the record.
    pub(super) fn lines(&self) -> [Option<&Line>; 4] {
        [self.stored.as_ref(), self.began.as_ref(), self.ended.as_ref(), self.changed.as_ref()]
    }
}

/// All records without an end, by id; without rows, by their position in the order of scheduling.
#[derive(Debug, Default)]
pub(super) struct Records {
    all: HashMap<i64, Record>,
}

impl Records {
    pub(super) fn get(&self, id: i64) -> Option<&Record> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Record> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, record: Record) {
        self.all.insert(record.id, record);
    }

    pub(super) fn remove(&mut self, id: i64) -> Option<Record> {
        self.all.remove(&id)
    }

    /// Clears the generations, because a new server may give the same ones again.
    pub(super) fn of_no_generation(&mut self) {
        self.all.values_mut().for_each(|record| record.generation = 0);
    }

    /// All records, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.all.values()
    }
}

impl Judge {
    /// The lane of a record. In claimed mode it is the record's own.
    pub(super) fn lane(&mut self, event: &Uuid, key: &str, handler: &str) -> Lane {
        let key = if self.expect.claimed { self.names.of(&event.to_string()) } else { self.names.of(key) };
        (key, self.names.of(handler))
    }

    /// The lane of a called record.
    pub(super) fn lane_of(&mut self, called: &Called) -> Lane {
        self.lane(&called.event, &called.key, &called.handler)
    }

    /// The record that a call names.
    pub(super) fn find(&mut self, called: &Called) -> Option<i64> {
        if self.has_rows() {
            let record = self.records.get(called.id)?;
            return (record.event == called.event).then_some(called.id);
        }
        let handler = self.names.of(&called.handler);
        let scheduled = self.writers.events.get(&called.event)?;
        scheduled.records.iter().find(|(of, _)| *of == handler).map(|(_, id)| *id)
    }

    /// Without rows: adds the records of a transaction when its commit begins.
    pub(super) fn assume_stored(&mut self, tx: u64) {
        let events = self.writers.transactions.get(&tx).map(|tx| tx.events.clone()).unwrap_or_default();
        for event in events {
            let Some(scheduled) = self.writers.events.get(&event) else { continue };
            if matches!(scheduled.written, Written::No(_)) {
                continue;
            }
            let (line, handlers) = (Arc::clone(&scheduled.line), scheduled.handlers.clone());
            let status = if scheduled.delayed { Status::Delayed } else { Status::Pending };
            let key = scheduled.key;
            // The numbers are far enough apart for the handlers of one event.
            let first = (line.position as i64).saturating_mul(1024);
            for (place, handler) in handlers.into_iter().enumerate() {
                let record = Record::new(first + place as i64, event, (key, handler), status);
                self.admit(record);
            }
        }
    }

    /// Without rows: removes them again.
    pub(super) fn drop_assumed(&mut self, event: &Uuid) {
        let records = self.writers.events.get_mut(event).map(|event| std::mem::take(&mut event.records));
        for (_, id) in records.unwrap_or_default() {
            if let Some(record) = self.records.remove(id) {
                self.leave_lane(&record);
            }
        }
    }

    /// Adds a new record.
    pub(super) fn admit(&mut self, record: Record) {
        if let Some(event) = self.writers.events.get_mut(&record.event) {
            event.records.push((record.lane.1, record.id));
            event.open += 1;
        }
        self.enter_lane(&record);
        self.records.insert(record);
    }

    /// A person acts on a failed record.
    pub(super) fn person(&mut self, id: i64, line: &Line) {
        if self.has_rows() {
            if let Some(record) = self.records.get_mut(id) {
                record.person = Some(Arc::clone(line));
            }
        } else if matches!(line.event.what, What::Discarded { .. }) {
            // Without rows, no other event shows its end.
            let found =
                self.records.iter().find(|record| record.called_id == Some(id)).map(|record| record.id);
            if let Some(found) = found {
                self.done(found);
            }
        }
    }
}
