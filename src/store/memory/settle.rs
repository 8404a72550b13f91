//! Writing outcomes, in the order of the SQL stores: completions, failures, what is set aside,
//! holds, and last the lanes that go on.

use std::time::Duration;

use tokio::time::Instant;

use super::outbox::Outbox;
use crate::{
    record::{Change, OnFailure, RecordId, Settlement, Status, StopReason},
    store::{Completed, FenceRow, Settled},
};

impl Outbox {
    /// Writes outcomes if the fence row is found; `None` if it is not.
    pub(super) fn settle(
        &mut self,
        fence: FenceRow,
        settlements: &[Settlement],
        completed: Completed,
        now: Instant,
    ) -> Option<Settled> {
        if !self.move_fence(fence) {
            return None;
        }
        let mut settled = Settled { number: Some((self.draw_number(), self.server())), ..Settled::default() };
        for Settlement { id, change, .. } in settlements {
            if let Change::StopRelease { by } = change {
                self.stop_release(*id, *by);
            }
        }
        let (mut resumed, mut stopped) = (Vec::new(), Vec::new());
        for Settlement { id, failures, change } in settlements {
            let (applied, goes_on) = match change {
                Change::Complete => (self.complete(*id, *failures, completed, now), false),
                Change::CompleteAndResume => (self.complete(*id, *failures, completed, now), true),
                Change::Retry { delay, error, counted, .. } => {
                    (self.retry(*id, *failures, (*delay, *counted), error, now), false)
                }
                Change::Fail { error, lane, counted } => {
                    (self.fail(*id, *failures, *counted, error), *lane == OnFailure::Continue)
                }
                Change::Unroutable => (self.set_aside(*id), false),
                Change::Resume => {
                    resumed.push(*id);
                    continue;
                }
                Change::Release | Change::StopRelease { .. } | Change::Hold { .. } => continue,
            };
            settled.applied += usize::from(applied);
            resumed.extend((applied && goes_on).then_some(*id));
            stopped.extend(reason(change).filter(|_| applied).map(|reason| (reason, *id)));
        }
        // Of several records that stop one lane, the first one of the first reason names it.
        stopped.sort_unstable();
        stopped.into_iter().for_each(|(reason, id)| self.stop_lane(id, reason, now));
        for Settlement { id, change, .. } in settlements {
            if let Change::Hold { behind } = change {
                settled.held += usize::from(self.hold(*id, *behind));
            }
        }
        settled.releasing = resumed.into_iter().filter(|id| self.resume_lane(*id)).count();
        let steps = settlements.iter().filter(|settlement| settlement.change == Change::Release);
        steps.for_each(|settlement| self.release_step(settlement.id));
        Some(settled)
    }

    /// Deletes, archives or keeps a delivered record.
    pub(super) fn complete(
        &mut self,
        id: RecordId,
        failures: u32,
        completed: Completed,
        now: Instant,
    ) -> bool {
        if !self.is_open(id, failures) {
            return false;
        }
        match completed {
            Completed::Keep => self.records.change(id, |row| {
                row.status = Status::Completed;
                row.completed = Some(now);
                row.next_attempt = None;
            }),
            Completed::Delete => self.records.remove(id).is_some(),
            Completed::Archive => match self.records.remove(id) {
                Some(row) => self.archive.insert(id, (row, now)).is_none(),
                None => false,
            },
        }
    }

    /// The compare of every outcome: nobody else has counted an attempt or ended the record.
    pub(super) fn is_open(&self, id: RecordId, failures: u32) -> bool {
        self.records.get(id).is_some_and(|row| row.is_open() && row.attempts == failures)
    }

    fn retry(
        &mut self,
        id: RecordId,
        failures: u32,
        (delay, counted): (Duration, bool),
        error: &str,
        now: Instant,
    ) -> bool {
        self.is_open(id, failures)
            && self.records.change(id, |row| {
                row.status = Status::Delayed;
                row.attempts += u32::from(counted);
                row.last_error = Some(error.to_owned());
                let due = now.checked_add(delay);
                row.next_attempt = due.into_iter().chain(row.expires).min();
            })
    }

    fn fail(&mut self, id: RecordId, failures: u32, counted: bool, error: &str) -> bool {
        self.is_open(id, failures)
            && self.records.change(id, |row| {
                row.status = Status::Failed;
                row.attempts += u32::from(counted);
                row.last_error = Some(error.to_owned());
                row.next_attempt = None;
            })
    }

    /// Holds a record, unless its lane was released meanwhile.
    fn hold(&mut self, id: RecordId, behind: RecordId) -> bool {
        let standing = self.lanes.get(&behind);
        let takes = standing.is_some_and(|row| row.reason != StopReason::Releasing || id > row.released_to);
        if !takes || !self.set_aside(id) {
            return false;
        }
        if let Some(stopped) = self.lanes.get_mut(&behind) {
            stopped.held += 1;
        }
        true
    }

    fn set_aside(&mut self, id: RecordId) -> bool {
        let open = self.records.get(id).is_some_and(super::rows::Row::is_open);
        open && self.records.change(id, |row| {
            row.status = Status::Held;
            row.next_attempt = None;
        })
    }
}

/// Why a lane stands still after this.
fn reason(change: &Change) -> Option<StopReason> {
    match change {
        Change::Retry { stop: true, .. } => Some(StopReason::Retrying),
        Change::Fail { lane: OnFailure::Block, .. } => Some(StopReason::Blocked),
        Change::Unroutable => Some(StopReason::Unroutable),
        _ => None,
    }
}
