//! Transactional runs: all records of a run in one transaction, fewer after a failure.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    attempt::{Surroundings, judge},
    lane::{Item, LaneItems},
    run::{FinishedItems, FinishedLane, FinishedLanes, Outcome},
    transaction::Transacted,
};
use crate::{
    handler::Entry,
    record::{Lane, Record},
    rules::lifecycle::lane_goes_on,
    store::TransactionalRun,
};

/// A record of the run and what became of it; nothing yet is untried.
struct Member {
    /// The place of its lane.
    lane: usize,
    item: Item,
    outcome: Option<Outcome>,
}

/// A run of a transactional handler.
struct Group<'a> {
    entry: &'a Entry,
    call: &'a Arc<dyn TransactionalRun>,
    around: &'a Surroundings,
    /// Each with whether it may still go on.
    lanes: Vec<(Lane, bool)>,
    /// In the order in which they are tried; each lane's in order.
    members: Vec<Member>,
}

/// Runs the records in as few transactions as can be. A failure takes back all of a transaction: then
/// each half of it is tried by itself, down to the record that fails.
pub(super) async fn run_in_transactions(
    entry: &Entry,
    call: &Arc<dyn TransactionalRun>,
    lanes: SmallVec<[LaneItems; 1]>,
    around: &Surroundings,
) -> FinishedLanes {
    let mut group = Group { entry, call, around, lanes: Vec::new(), members: Vec::new() };
    for (place, LaneItems { lane, items }) in lanes.into_iter().enumerate() {
        group.lanes.push((lane, true));
        group.members.extend(items.into_iter().map(|item| Member { lane: place, item, outcome: None }));
    }
    let mut parts = group.parts();
    while let Some(part) = parts.pop() {
        let part: Vec<usize> = part.into_iter().filter(|member| group.goes_on(*member)).collect();
        if let Some((first, second)) = group.run_part(part).await {
            parts.extend([second, first]);
        }
    }
    group.finish()
}

impl Group<'_> {
    /// What to try together, the first at the end. What has failed before is likely to fail again, so
    /// it takes nothing back but itself.
    fn parts(&self) -> Vec<Vec<usize>> {
        let has_failed = |member: &usize| self.members[*member].item.record.failures() > 0;
        let members: Vec<usize> = (0..self.members.len()).rev().collect();
        let parts = members.chunk_by(|one, next| !has_failed(one) && !has_failed(next));
        parts.map(|part| part.iter().rev().copied().collect()).collect()
    }

    fn goes_on(&self, member: usize) -> bool {
        self.lanes[self.members[member].lane].1
    }

    /// Tries some records in one transaction. Returns two halves to be tried instead, if that failed.
    async fn run_part(&mut self, part: Vec<usize>) -> Option<(Vec<usize>, Vec<usize>)> {
        let Self { entry, call, around, .. } = *self;
        let (first, rest) = part.split_first()?;
        let items = || part.iter().map(|member| &self.members[*member].item);
        let records: Vec<&Record> = items().map(|item| &*item.record).collect();
        let may_start = || items().all(|item| item.permit.may_start());
        let started = around.clock.now();
        let guards = &around.guards;
        let transacted = guards.run(&**call, &records, &around.states, entry.timeout, may_start).await;
        match transacted {
            Transacted::Committed => {
                for member in part {
                    self.members[member].outcome = Some(Outcome::Written);
                }
            }
            Transacted::Untried => part.iter().for_each(|member| self.stop(*member, None)),
            Transacted::Aborted(error) => {
                self.stop(*first, Some(Outcome::Aborted(error)));
                rest.iter().for_each(|member| self.stop(*member, Some(Outcome::Gone)));
            }
            Transacted::Gone | Transacted::Failed(_) if !rest.is_empty() => {
                let (first, second) = part.split_at(part.len() / 2);
                return Some((first.to_vec(), second.to_vec()));
            }
            Transacted::Gone => self.stop(*first, Some(Outcome::Gone)),
            Transacted::Failed(error) => {
                let Item { record, stops_lane, .. } = &self.members[*first].item;
                let change = judge(entry, record, *stops_lane, Err(error), started, around).await;
                match lane_goes_on(&change) {
                    true => self.members[*first].outcome = Some(Outcome::Write(change)),
                    false => self.stop(*first, Some(Outcome::Write(change))),
                }
            }
        }
        None
    }

    /// Nothing that follows in its lane is tried.
    fn stop(&mut self, member: usize, outcome: Option<Outcome>) {
        self.lanes[self.members[member].lane].1 = false;
        self.members[member].outcome = outcome;
    }

    fn finish(self) -> FinishedLanes {
        let lanes = self.lanes.into_iter();
        let mut finished: FinishedLanes =
            lanes.map(|(lane, _)| FinishedLane { lane, items: FinishedItems::new() }).collect();
        for Member { lane, item, outcome } in self.members {
            finished[lane].items.push((item, outcome.unwrap_or(Outcome::Untried)));
        }
        finished
    }
}
