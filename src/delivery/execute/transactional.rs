//! Transactional runs: all records of a run in one transaction, fewer after a failure.

use std::{sync::Arc, time::Duration};

use super::{
    attempt::{decide, end_expired},
    context::ExecContext,
    flight::Flight,
    slot::Transacted,
};
use crate::{
    delivery::outcome::Outcome,
    handler::Entry,
    ownership::Ticket,
    record::{Record, RecordId},
    store::{TransactionalRun, Work},
};

/// A record of a part: the records that one transaction tries together.
#[derive(Clone)]
struct Member {
    /// The index of its lane in the flight.
    lane: usize,
    record: Arc<Record>,
    ticket: Ticket,
    /// Whether the record was tried before, so that its lane may have a stop. An uncounted attempt leaves no
    /// failure.
    stops_lane: bool,
    /// Its deadline, on the clock.
    expires: Option<Duration>,
}

impl Member {
    fn has_expired(&self, context: &ExecContext) -> bool {
        self.expires.is_some_and(|expires| expires <= context.clock.now())
    }
}

/// Runs the records in as few transactions as possible. A failure rolls back the whole transaction. Then each
/// half is tried by itself, down to the record that fails.
pub(super) async fn run_in_transactions(
    flight: &mut Flight<'_>,
    entry: &Entry,
    call: &Arc<dyn TransactionalRun>,
    context: &ExecContext,
) {
    let mut parts = parts(flight);
    while let Some(mut part) = parts.pop() {
        part.retain(|member| flight.next(member.lane).is_some());
        if let Some(expired) = part.iter().position(|member| member.has_expired(context)) {
            // The record ends at its place in the lane: behind the earlier records, before the later ones.
            let rest = part.split_off(expired + usize::from(expired == 0));
            parts.push(rest);
            if expired == 0 {
                end_expired(flight, entry, part[0].lane, context).await;
                flight.stop(part[0].lane);
                continue;
            }
        }
        let half = part.len() / 2;
        if run_part(flight, entry, call, &part, context).await {
            let second = part.split_off(half);
            parts.extend([second, part]);
        }
    }
}

/// The records that are tried together, the first part last. A record that has failed before is likely to
/// fail again: it is tried by itself, so that its failure rolls back nothing else.
fn parts(flight: &Flight<'_>) -> Vec<Vec<Member>> {
    let mut members = Vec::new();
    for lane in 0..flight.lanes() {
        members.extend(flight.rest(lane).map(|item| Member {
            lane,
            record: Arc::clone(&item.record),
            ticket: item.permit.ticket(),
            stops_lane: item.stops_lane || item.record.failures() > 0,
            expires: item.expires,
        }));
    }
    let parts = members.chunk_by(|one, next| !one.stops_lane && !next.stops_lane);
    let mut parts: Vec<Vec<Member>> = parts.map(<[Member]>::to_vec).collect();
    parts.reverse();
    parts
}

/// Tries some records in one transaction. Returns whether the halves are to be tried instead.
async fn run_part(
    flight: &mut Flight<'_>,
    entry: &Entry,
    call: &Arc<dyn TransactionalRun>,
    part: &[Member],
    context: &ExecContext,
) -> bool {
    let Some((first, rest)) = part.split_first() else { return false };
    let started = context.clock.now();
    let stop = |flight: &mut Flight<'_>| part.iter().for_each(|member| flight.stop(member.lane));
    let Some(mut slot) = flight.lend_slot() else {
        stop(flight);
        return false;
    };
    for of_lane in part.chunk_by(|one, next| one.lane == next.lane) {
        flight.begin(of_lane[0].lane, of_lane.len(), started);
    }
    let records: Vec<&Record> = part.iter().map(|member| &*member.record).collect();
    let stopping = part.iter().filter(|member| member.stops_lane);
    let stopping: Vec<RecordId> = stopping.map(|member| member.record.delivery.id).collect();
    let work = Work {
        records: &records,
        stopping: &stopping,
        states: &context.states,
        timeout: entry.timeout,
        may_start: &|| part.iter().all(|member| member.ticket.may_start() && !member.has_expired(context)),
    };
    let transacted = flight.wait(slot.run(&**call, &work)).await;
    flight.take_slot_back(slot);
    match transacted {
        Transacted::Committed => part.iter().for_each(|member| flight.end(member.lane, Outcome::Written)),
        Transacted::Untried => stop(flight),
        Transacted::Aborted(error) => {
            stop(flight);
            flight.end(first.lane, Outcome::Aborted(Box::new(error)));
            rest.iter().for_each(|member| flight.end(member.lane, Outcome::Lost));
        }
        Transacted::Lost | Transacted::Failed(_) if !rest.is_empty() => {
            part.iter().for_each(|member| flight.take_back(member.lane));
            return true;
        }
        Transacted::Lost => flight.end(first.lane, Outcome::Lost),
        Transacted::Failed(error) => {
            let outcome = decide(flight, first.lane, entry, &first.record, Err(error), context).await;
            flight.end(first.lane, outcome);
            // The next transaction of the lane must not be durable before this outcome.
            flight.stop(first.lane);
        }
    }
    false
}
