//! Writing outcomes, in the order of the SQL stores: completions, failures, unroutable records, holds, and
//! last the lanes that go on.

use std::time::Duration;

use tokio::time::Instant;

use super::outbox::Outbox;
use crate::{
    record::{Change, OnFailure, RecordId, Settlement, Status, StopReason},
    store::{Completed, FenceRow, Settled},
};

impl Outbox {
    /// Writes outcomes. `None` if the fence row does not have the expected counter.
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
        // If several records stop one lane, the stop names the first record of the first reason.
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

    /// Deletes, archives or keeps a completed record.
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

    /// The comparison of every outcome: no other write has counted an attempt or ended the record.
    pub(super) fn is_open(&self, id: RecordId, failures: u32) -> bool {
        self.records.get(id).is_some_and(|row| row.is_open() && row.attempts == failures)
    }

    pub(super) fn retry(
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

    pub(super) fn fail(&mut self, id: RecordId, failures: u32, counted: bool, error: &str) -> bool {
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

/// The reason for which the change stops its lane, or `None`.
fn reason(change: &Change) -> Option<StopReason> {
    match change {
        Change::Retry { stop: true, .. } => Some(StopReason::Retrying),
        Change::Fail { lane: OnFailure::Block, .. } => Some(StopReason::Blocked),
        Change::Unroutable => Some(StopReason::Unroutable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{
        instance::InstanceId,
        partition::Partition,
        record::{Due, NewRecord},
        store::memory::rows::Row,
    };

    /// Pending records of one key, with ids from 1 on, and a fence row.
    fn with_records(count: i64) -> (Outbox, FenceRow) {
        let mut outbox = Outbox::new(1, false);
        let fence = FenceRow::of_settler(InstanceId::generate(), outbox.server());
        outbox.fences.insert((fence.instance, fence.slot), 0);
        let new = NewRecord {
            event_id: Uuid::nil(),
            partition: Partition::of("a"),
            key: "a".to_owned(),
            handler: "h".into(),
            record_type: "t".into(),
            content_type: "application/json".into(),
            payload: Vec::new(),
            headers: Default::default(),
            due: Due::Now,
            deadline: None,
            dedup_key: None,
        };
        for id in 1..=count {
            outbox.records.insert(id, Row::pending(new.clone(), Instant::now()));
        }
        (outbox, fence)
    }

    fn retry() -> Change {
        Change::Retry { delay: Duration::from_secs(1), error: String::new(), stop: true, counted: true }
    }

    fn fail() -> Change {
        Change::Fail { error: String::new(), lane: OnFailure::Block, counted: true }
    }

    /// Settles, and moves the fence row on.
    fn settle(outbox: &mut Outbox, fence: &mut FenceRow, changes: Vec<(RecordId, u32, Change)>) -> Settled {
        let settlements: Vec<Settlement> =
            changes.into_iter().map(|(id, failures, change)| Settlement { id, failures, change }).collect();
        let settled = outbox.settle(*fence, &settlements, Completed::Delete, Instant::now()).unwrap();
        *fence = fence.moved();
        settled
    }

    fn rows(outbox: &Outbox) -> Vec<(RecordId, Status, u32)> {
        outbox.records.all().map(|(id, row)| (id, row.status, row.attempts)).collect()
    }

    #[test]
    fn without_its_fence_row_nothing_is_written() {
        let (mut outbox, fence) = with_records(2);
        let before = rows(&outbox);
        for change in [Change::Complete, retry(), fail(), Change::Unroutable] {
            let settlement = Settlement { id: 1, failures: 0, change };
            for fence in [fence.moved(), FenceRow { slot: 7, ..fence }] {
                let refused = outbox.settle(
                    fence,
                    std::slice::from_ref(&settlement),
                    Completed::Delete,
                    Instant::now(),
                );
                assert!(refused.is_none(), "{:?}", settlement.change);
                assert_eq!(rows(&outbox), before);
            }
        }
    }

    #[test]
    fn an_outcome_is_written_to_a_record_as_it_was_fetched_and_to_no_other() {
        let (mut outbox, mut fence) = with_records(3);
        let first = vec![(1, 0, Change::Complete), (2, 0, fail()), (3, 1, retry())];
        assert_eq!(settle(&mut outbox, &mut fence, first).applied, 2, "the third has never failed");
        let after = vec![(2, Status::Failed, 1), (3, Status::Pending, 0)];
        assert_eq!(rows(&outbox), after);
        let late = vec![(1, 0, retry()), (2, 1, retry()), (2, 0, Change::Complete), (3, 2, Change::Complete)];
        assert_eq!(settle(&mut outbox, &mut fence, late).applied, 0);
        assert_eq!(rows(&outbox), after);
    }

    /// If a lane goes on, the records held behind its first one are pending again, at once unless they are
    /// many.
    #[test]
    fn much_that_is_held_returns_in_steps() {
        for (held, at_once) in [(1_000, true), (1_001, false)] {
            let (mut outbox, mut fence) = with_records(held + 1);
            let holds = (2..=held + 1).map(|id| (id, 0, Change::Hold { behind: 1 }));
            let stop = std::iter::once((1, 0, retry())).chain(holds).collect();
            assert_eq!(settle(&mut outbox, &mut fence, stop).held as i64, held);
            let goes_on = settle(&mut outbox, &mut fence, vec![(1, 1, Change::CompleteAndResume)]);
            assert_eq!(goes_on.releasing, usize::from(!at_once));
            let pending = rows(&outbox).iter().filter(|(_, status, _)| *status == Status::Pending).count();
            assert_eq!(pending as i64, if at_once { held } else { 0 });
        }
    }
}
