//! Records without an end.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{Judge, line::Line, names::Name, writers::Written};
use crate::{Called, End, Status, What};

/// Key and handler: one after another.
pub(super) type Lane = (Name, Name);

/// How far the calls of a record have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Never called.
    New,
    /// Being called by the owner.
    Running,
    /// Its last call was cut off: nobody knows what it has done.
    Interrupted,
    /// Its last call has failed.
    Failed,
    /// Its last call has succeeded.
    Done,
    /// It had succeeded under an earlier owner, who did not make that durable.
    Redo,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) id: i64,
    /// The id that calls name it by.
    pub(super) called_id: Option<i64>,
    pub(super) event: Uuid,
    pub(super) lane: Lane,
    pub(super) partition: Option<u16>,
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) state: State,
    /// The last call of an owner, its instance, generation and attempt.
    pub(super) call: Option<u64>,
    pub(super) instance: Name,
    pub(super) generation: i64,
    pub(super) attempt: u32,
    pub(super) end: Option<End>,
    pub(super) stored: Option<Line>,
    pub(super) changed: Option<Line>,
    pub(super) began: Option<Line>,
    pub(super) ended: Option<Line>,
    pub(super) failures: u32,
    pub(super) unavailable: u32,
    pub(super) crashes: u32,
    /// Instances whose calls have succeeded.
    pub(super) succeeded: Vec<Name>,
    pub(super) by_fallback: bool,
    /// Scheduled for later and not called yet: it has no place in the order.
    pub(super) delayed: bool,
    /// Scheduled for later: once it is due it goes before what is still pending.
    pub(super) later: bool,
    /// A later record that was called after its last failure: that failure must have been its last.
    pub(super) overtaken: Option<Line>,
    /// Its end was forgotten by a failover, or its lane went on without it: nothing waits for it.
    pub(super) exempt: bool,
    /// What a person did to it that is not done yet.
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

    /// The number to name it by: that of the database, if it is known.
    pub(super) fn number(&self) -> i64 {
        self.called_id.unwrap_or(self.id)
    }

    /// The lines that show what became of it.
    pub(super) fn lines(&self) -> [Option<&Line>; 4] {
        [self.stored.as_ref(), self.began.as_ref(), self.ended.as_ref(), self.changed.as_ref()]
    }
}

/// All records without an end, by id; without rows, by their place in the order of scheduling.
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

    /// A new server may give the same generations again: no call was under one of those.
    pub(super) fn of_no_generation(&mut self) {
        self.all.values_mut().for_each(|record| record.generation = 0);
    }

    /// All, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.all.values()
    }
}

impl Judge {
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

    /// Without rows: takes the records of a transaction as stored when its commit begins.
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
            // Places are far enough apart for the handlers of one event.
            let first = (line.position as i64).saturating_mul(1024);
            for (place, handler) in handlers.into_iter().enumerate() {
                let record = Record::new(first + place as i64, event, (key, handler), status);
                self.admit(record);
            }
        }
    }

    /// Without rows: takes them away again.
    pub(super) fn drop_assumed(&mut self, event: &Uuid) {
        let records = self.writers.events.get_mut(event).map(|event| std::mem::take(&mut event.records));
        for (_, id) in records.unwrap_or_default() {
            if let Some(record) = self.records.remove(id) {
                self.leave_lane(&record);
            }
        }
    }

    /// Takes a new record in.
    pub(super) fn admit(&mut self, record: Record) {
        if let Some(event) = self.writers.events.get_mut(&record.event) {
            event.records.push((record.lane.1, record.id));
            event.open += 1;
        }
        self.enter_lane(&record);
        self.records.insert(record);
    }

    /// Notes what a person does to a failed record.
    pub(super) fn person(&mut self, id: i64, line: &Line) {
        if self.has_rows() {
            if let Some(record) = self.records.get_mut(id) {
                record.person = Some(Arc::clone(line));
            }
        } else if matches!(line.event.what, What::Discarded { .. }) {
            // Without rows nothing else tells of its end.
            let found =
                self.records.iter().find(|record| record.called_id == Some(id)).map(|record| record.id);
            if let Some(found) = found {
                self.done(found);
            }
        }
    }
}
