//! A run: the records of one lane (or, for mixed batches, of several) through their handler.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{
    attempt::{Surroundings, guarded, judge},
    group::run_in_transactions,
    lane::{Item, Items, LaneItems, Run},
};
use crate::{
    handler::{BatchCall, BatchResults, Call, Context, Entry, Form, HandlerError},
    record::{Change, Lane, Record},
    rules::lifecycle::lane_goes_on,
    store::StoreError,
};

/// How a record left its run.
pub(super) enum Outcome {
    /// This is to be written.
    Write(Change),
    /// Completed in its handler's own transaction; a lane that it had stopped goes on.
    Written,
    /// Not tried: it keeps its place.
    Untried,
    /// The database failed around it, no attempt counts: it is fetched again.
    Aborted(StoreError),
    /// Another owner has settled it, or may have: it is to be looked at again.
    Gone,
}

/// Runs of a task that have ended.
pub(super) struct Report {
    pub(super) ended: Vec<Finished>,
    /// What a run of the task took of the processor until it ended or waited for the first time.
    pub(super) mean_run: Option<Duration>,
}

/// A run that has ended.
pub(super) struct Finished {
    pub(super) lanes: FinishedLanes,
}

pub(super) type FinishedLanes = SmallVec<[FinishedLane; 1]>;
pub(super) type FinishedItems = SmallVec<[(Item, Outcome); 1]>;

/// What became of the records of one lane, in their order.
pub(super) struct FinishedLane {
    pub(super) lane: Lane,
    pub(super) items: FinishedItems,
}

impl Run {
    /// Runs to the end, or to the first record after which the lane may not go on.
    pub(super) async fn execute(self, around: &Surroundings) -> Finished {
        let Self { entry, lanes } = self;
        let lanes = match &entry.form {
            Form::Batch { call, .. } => Box::pin(run_batch(&entry, call, lanes, around)).await,
            Form::Transactional { call, .. } => {
                Box::pin(run_in_transactions(&entry, call, lanes, around)).await
            }
            Form::Single(call) => {
                let mut finished = FinishedLanes::with_capacity(lanes.len());
                for LaneItems { lane, items } in lanes {
                    let items = run_lane(&entry, call, items, around).await;
                    finished.push(FinishedLane { lane, items });
                }
                finished
            }
        };
        Finished { lanes }
    }
}

async fn run_lane(entry: &Entry, call: &Arc<dyn Call>, items: Items, around: &Surroundings) -> FinishedItems {
    let mut finished = FinishedItems::with_capacity(items.len());
    let mut goes_on = true;
    for item in items {
        // The last look at the lease, as close to the call as can be.
        let outcome = match goes_on.then(|| item.permit.starts_at()).flatten() {
            Some(started) => Outcome::Write(run_one(entry, call, &item, started, around).await),
            None => Outcome::Untried,
        };
        goes_on = matches!(&outcome, Outcome::Write(change) if lane_goes_on(change));
        finished.push((item, outcome));
    }
    finished
}

async fn run_one(
    entry: &Entry,
    call: &Arc<dyn Call>,
    item: &Item,
    started: Duration,
    around: &Surroundings,
) -> Change {
    let record = &*item.record;
    let result = guarded(entry.timeout, call.call(Context::new(record, &around.states))).await;
    judge(entry, record, item.stops_lane, result.and_then(|returned| returned), started, around).await
}

async fn run_batch(
    entry: &Entry,
    call: &Arc<dyn BatchCall>,
    lanes: SmallVec<[LaneItems; 1]>,
    around: &Surroundings,
) -> FinishedLanes {
    let may_start = lanes.iter().flat_map(|lane| &lane.items).all(|item| item.permit.may_start());
    let records: Vec<&Record> = lanes.iter().flat_map(|lane| &lane.items).map(|item| &*item.record).collect();
    let started = around.clock.now();
    let mut results = match may_start {
        true => call_batch(entry, call, &records, around).await.into_iter(),
        false => Vec::new().into_iter(),
    };
    let mut finished = FinishedLanes::with_capacity(lanes.len());
    for LaneItems { lane, items } in lanes {
        let mut judged = FinishedItems::with_capacity(items.len());
        // The prefix rule: once a lane may not go on, later results of it do not count.
        let mut goes_on = true;
        for item in items {
            let result = results.next();
            let outcome = match result.filter(|_| goes_on) {
                Some(result) => {
                    Outcome::Write(judge(entry, &item.record, item.stops_lane, result, started, around).await)
                }
                None => Outcome::Untried,
            };
            goes_on = matches!(&outcome, Outcome::Write(change) if lane_goes_on(change));
            judged.push((item, outcome));
        }
        finished.push(FinishedLane { lane, items: judged });
    }
    finished
}

/// A call that fails as a whole fails its first record; one that returns nothing does too, or it
/// would be called for ever.
async fn call_batch(
    entry: &Entry,
    call: &Arc<dyn BatchCall>,
    records: &[&Record],
    around: &Surroundings,
) -> BatchResults {
    match guarded(entry.timeout, call.call(records, &around.states)).await {
        Ok(results) if results.is_empty() => {
            vec![Err(HandlerError::new("the batch handler returned no results"))]
        }
        Ok(results) => results,
        Err(error) => vec![Err(error)],
    }
}
