//! The handlers of the model: calls, their results, and the outcomes that are written.

use std::collections::BTreeSet;

use keylane_checker::{CallKind, Called, End, Status, What};

use crate::{
    cluster::State,
    model::{BACKOFF, HANDLERS, KEYS, Model, Row, partition},
};

/// A call that has not ended.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) call: u64,
    kind: CallKind,
    pub(crate) ids: Vec<i64>,
}

/// An outcome that is to be written.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Complete,
    Again { due: u64, attempts: u32 },
    Fail { attempts: u32 },
}

type Lane = (usize, usize);

impl Model {
    /// Each instance that is up begins some of the calls that it may make.
    pub(crate) fn begin_calls(&mut self) {
        for instance in 0..self.instances.len() {
            if self.instances[instance].state != State::Up {
                continue;
            }
            for handler in 0..HANDLERS.len() {
                let lanes: Vec<Lane> = (0..KEYS.len()).map(|key| (key, handler)).collect();
                let mut batch = Vec::new();
                for lane in lanes {
                    let most = if handler == 2 { 3 } else { 1 };
                    let ready = self.ready(instance, lane, most);
                    if self.benign || self.choices.below(3) > 0 {
                        batch.extend(ready);
                    }
                    if handler != 2 {
                        let kind = if handler == 1 { CallKind::Transactional } else { CallKind::Single };
                        self.begin(instance, kind, std::mem::take(&mut batch));
                    }
                }
                self.begin(instance, CallKind::Batch, batch);
            }
        }
    }

    /// The next records of a lane that the instance may call.
    fn ready(&self, instance: usize, lane: Lane, most: usize) -> Vec<i64> {
        let me = &self.instances[instance];
        let row_of = |id: &i64| self.database.rows.get(id).is_some_and(|row| (row.key, row.handler) == lane);
        let owned = self.database.owners[usize::from(partition(lane.0))].0 == Some(instance);
        if !owned || me.calls.iter().flat_map(|open| &open.ids).any(row_of) {
            return Vec::new();
        }
        let mut ready = Vec::new();
        for (id, row) in self.database.rows.iter().filter(|(id, _)| row_of(id)) {
            match me.outcomes.get(id) {
                Some(Outcome::Complete) => continue,
                Some(_) => break,
                None => {}
            }
            let waits = row.status == Status::Delayed && row.due > self.now;
            if waits && row.fresh {
                continue;
            }
            if waits || matches!(row.status, Status::Held | Status::Failed) || ready.len() == most {
                break;
            }
            ready.push(*id);
        }
        ready
    }

    fn begin(&mut self, instance: usize, kind: CallKind, ids: Vec<i64>) {
        if ids.is_empty() {
            return;
        }
        let mut records = Vec::new();
        for id in &ids {
            let row = self.database.rows.get_mut(id).expect("a row");
            row.fresh = false;
            let place = partition(row.key);
            records.push(Called {
                id: *id,
                event: row.event,
                handler: HANDLERS[row.handler].to_owned(),
                key: KEYS[row.key].to_owned(),
                partition: place,
                generation: self.database.owners[usize::from(place)].1,
                attempt: row.attempts + 1,
            });
        }
        let (call, name) = (self.call(), self.instances[instance].name.clone());
        self.tell(&name.clone(), What::CallBegan { call, instance: name, kind, records });
        self.instances[instance].calls.push(Open { call, kind, ids });
    }

    /// Some of the calls end.
    pub(crate) fn end_calls(&mut self) {
        for instance in 0..self.instances.len() {
            if self.instances[instance].state == State::Up {
                for open in std::mem::take(&mut self.instances[instance].calls) {
                    match self.benign || self.choices.below(3) > 0 {
                        true => self.end(instance, open),
                        false => self.instances[instance].calls.push(open),
                    }
                }
            }
        }
    }

    fn how(&mut self) -> End {
        const ENDS: [End; 6] =
            [End::Failed, End::Permanent, End::Unavailable, End::Panicked, End::TimedOut, End::Dropped];
        match self.choices.below(24) {
            end if !self.benign && end < ENDS.len() => ENDS[end],
            _ => End::Ok,
        }
    }

    fn end(&mut self, instance: usize, open: Open) {
        let (mut ends, mut stopped) = (Vec::new(), BTreeSet::new());
        for id in &open.ids {
            let row = &self.database.rows[id];
            let lane = (row.key, row.handler);
            let end = if stopped.contains(&lane) { End::Dropped } else { self.how() };
            if end != End::Ok {
                stopped.insert(lane);
            }
            ends.push(end);
        }
        let name = self.instances[instance].name.clone();
        self.tell(&name, What::CallEnded { call: open.call, ends: ends.clone() });
        for (id, end) in open.ids.iter().zip(ends) {
            let outcome = self.outcome(instance, *id, end);
            if let Some(outcome) = outcome {
                self.instances[instance].outcomes.insert(*id, outcome);
            }
        }
        // The effect of a transactional handler is durable with the completion.
        if open.kind == CallKind::Transactional {
            let row = &self.database.rows[&open.ids[0]];
            if let Some(Outcome::Complete) = self.instances[instance].outcomes.get(&open.ids[0]) {
                self.database.effects.push((row.event, row.handler));
            }
            let own = self.instances[instance].outcomes.remove(&open.ids[0]);
            let others = std::mem::take(&mut self.instances[instance].outcomes);
            self.instances[instance].outcomes.extend(own.map(|own| (open.ids[0], own)));
            self.settle(instance);
            self.instances[instance].outcomes = others;
        }
    }

    fn outcome(&mut self, instance: usize, id: i64, end: End) -> Option<Outcome> {
        let row = self.database.rows[&id].clone();
        let attempts = row.attempts + 1;
        match end {
            End::Ok => Some(Outcome::Complete),
            End::Dropped => None,
            End::Unavailable => Some(Outcome::Again { due: self.now + BACKOFF, attempts: row.attempts }),
            End::Failed | End::Panicked | End::TimedOut if attempts < 3 => {
                Some(Outcome::Again { due: self.now + BACKOFF, attempts })
            }
            _ if row.handler == 0 => Some(self.fall_back(instance, id, &row, attempts)),
            _ => Some(Outcome::Fail { attempts }),
        }
    }

    fn fall_back(&mut self, instance: usize, id: i64, row: &Row, attempts: u32) -> Outcome {
        self.begin(instance, CallKind::Fallback, vec![id]);
        let open = self.instances[instance].calls.pop().expect("the fallback");
        let good = self.choices.below(2) == 0;
        let end = if good { End::Ok } else { End::Failed };
        let name = self.instances[instance].name.clone();
        self.tell(&name, What::CallEnded { call: open.call, ends: vec![end] });
        assert_eq!(row.handler, 0);
        if good { Outcome::Complete } else { Outcome::Fail { attempts } }
    }

    pub(crate) fn settle_one(&mut self) {
        let instance = self.choices.below(self.instances.len());
        if self.instances[instance].state == State::Up {
            self.settle(instance);
        }
    }

    pub(crate) fn settle_all(&mut self) {
        for instance in 0..self.instances.len() {
            if self.instances[instance].state == State::Up {
                self.settle(instance);
            }
        }
    }

    /// Writes an outcome that an instance knows, and holds or releases the later records of the lane.
    pub(crate) fn settle(&mut self, instance: usize) {
        let by = Some(self.instances[instance].name.clone());
        for (id, outcome) in std::mem::take(&mut self.instances[instance].outcomes) {
            let Some(row) = self.database.rows.get_mut(&id) else { continue };
            let lane = (row.key, row.handler);
            let (status, attempts) = match outcome {
                Outcome::Complete => (Status::Gone, row.attempts),
                Outcome::Again { due, attempts } => {
                    row.due = due;
                    (Status::Delayed, attempts)
                }
                Outcome::Fail { attempts } => (Status::Failed, attempts),
            };
            self.change(id, status, attempts, by.clone());
            match status {
                Status::Gone => self.pass_on(lane, Status::Held, Status::Pending, i64::MIN, by.as_ref()),
                _ => self.pass_on(lane, Status::Pending, Status::Held, id, by.as_ref()),
            }
        }
    }

    pub(crate) fn change(&mut self, id: i64, status: Status, attempts: u32, by: Option<String>) {
        match status {
            Status::Gone => drop(self.database.rows.remove(&id)),
            _ => {
                if let Some(row) = self.database.rows.get_mut(&id) {
                    (row.status, row.attempts) = (status, attempts);
                }
            }
        }
        self.tell("database", What::Changed { id, status, attempts, by });
    }

    /// Holds the later records of a lane, or returns them.
    pub(crate) fn pass_on(&mut self, lane: Lane, from: Status, to: Status, after: i64, by: Option<&String>) {
        let later: Vec<(i64, u32)> = (self.database.rows.iter())
            .filter(|(id, row)| **id > after && (row.key, row.handler) == lane && row.status == from)
            .map(|(id, row)| (*id, row.attempts))
            .collect();
        for (id, attempts) in later {
            self.change(id, to, attempts, by.cloned());
        }
    }

    /// A person retries or discards what has failed.
    pub(crate) fn repair(&mut self) {
        let failed = self.database.rows.iter().filter(|(_, row)| row.status == Status::Failed);
        let failed: Vec<(i64, Lane)> = failed.map(|(id, row)| (*id, (row.key, row.handler))).collect();
        for (id, lane) in failed {
            match self.choices.below(3) {
                0 => self.tell("person", What::Retried { id }),
                1 => self.tell("person", What::Replaced { id }),
                _ => {
                    self.tell("person", What::Discarded { id });
                    self.change(id, Status::Gone, 0, None);
                    self.pass_on(lane, Status::Held, Status::Pending, i64::MIN, None);
                    continue;
                }
            }
            self.change(id, Status::Pending, 0, None);
            self.pass_on(lane, Status::Held, Status::Pending, i64::MIN, None);
        }
    }
}
