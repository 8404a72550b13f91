//! The observer that writes the log. Every outbox has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Observer, Signal,
    outage::{Line, Outage},
};
use crate::clock::Clock;

/// Writes signals to `tracing`, target `keylane`. An outage of the database writes one line when it begins,
/// one line per minute and one when it ends, however many calls fail.
#[derive(Debug, Default)]
pub struct LogObserver(Mutex<Outage>);

impl Observer for LogObserver {
    fn on(&self, signal: &Signal) {
        if alarm(signal) {
            return;
        }
        match signal {
            Signal::Evicted { instance } => {
                tracing::warn!(target: "keylane", %instance, "evicted by another instance; joining again");
            }
            Signal::LeaseLapsed => tracing::warn!(target: "keylane", "lease lapsed; dispatch stands still"),
            Signal::ClaimsLost { partitions } => {
                tracing::warn!(target: "keylane", %partitions, "owner no more by the database; joining again");
            }
            Signal::ClaimsDiffer { selected, claimed } => tracing::warn!(
                target: "keylane", selected, claimed, "a claim has selected and updated different numbers of records"
            ),
            Signal::ClaimsOutlived { records } => tracing::warn!(
                target: "keylane", records, "claims outlived their leases; newer owners keep what they have written"
            ),
            Signal::CrashesSuspected { partitions } => tracing::warn!(
                target: "keylane", %partitions, "earlier owners have crashed here; handler calls are noted"
            ),
            Signal::ServerChanged { instance } => tracing::warn!(
                target: "keylane", %instance,
                "another server answers, or the same one after a crash; joining again"
            ),
            Signal::PeerEvicted { instance, silent_for } => {
                tracing::warn!(target: "keylane", %instance, ?silent_for, "declared a peer dead");
            }
            Signal::NotificationsAbsent { error } => {
                tracing::info!(target: "keylane", error, "no notifications of commits here; polls go on alone");
            }
            Signal::WorkersDropped { instance } => tracing::warn!(
                target: "keylane", %instance,
                "workers dropped without a shutdown; this process delivers nothing more: keep what start() returns"
            ),
            Signal::WorkersDied { instance, error } => tracing::error!(
                target: "keylane", %instance, error, "[ALERT] the workers have ended; this process delivers nothing more"
            ),
            Signal::ShutdownForced { records } => {
                tracing::warn!(target: "keylane", records, "shutdown timeout: cancelled what was in flight");
            }
            Signal::StoreFailed { call, error } => match self.outage().failed(Clock::Boot.now()) {
                Some(Line::Begins) => tracing::warn!(
                    target: "keylane", call, error, "database calls fail; trying again, with a line a minute"
                ),
                Some(Line::GoesOn { lasted, failures }) => tracing::warn!(
                    target: "keylane", call, error, ?lasted, failures, "database calls still fail; trying again"
                ),
                Some(Line::Ends { .. }) | None => tracing::trace!(target: "keylane", ?signal),
            },
            Signal::BeatAnswered => match self.outage().answered() {
                Some(Line::Ends { lasted, failures }) => {
                    tracing::warn!(target: "keylane", ?lasted, failures, "database calls succeed again");
                }
                _ => tracing::trace!(target: "keylane", ?signal),
            },
            Signal::RetryScheduled { record, lane, attempts, delay } => tracing::info!(
                target: "keylane", record, partition = %lane.partition, handler = %lane.handler, attempts, ?delay,
                "record failed; trying again"
            ),
            Signal::TargetUnavailable { record, lane, delay } => tracing::warn!(
                target: "keylane", record, partition = %lane.partition, handler = %lane.handler, ?delay,
                "the handler's target is unavailable; trying again, no attempt counted"
            ),
            Signal::Fetched { .. } | Signal::Settled { .. } => {
                tracing::trace!(target: "keylane", ?signal);
            }
            _ => tracing::info!(target: "keylane", ?signal),
        }
    }
}

/// Writes the signals that call for action by a person. Returns whether the signal was one of them.
fn alarm(signal: &Signal) -> bool {
    match signal {
        Signal::RecordFailed { record, event_id, trace_id, lane, attempts, error, blocked } => {
            tracing::error!(
                target: "keylane", record, %event_id, trace_id, partition = %lane.partition,
                handler = %lane.handler, attempts, error, blocked, "[ALERT] record failed for good"
            )
        }
        Signal::Unroutable { record, lane, record_type } => tracing::error!(
            target: "keylane", record, partition = %lane.partition, handler = %lane.handler, record_type,
            "[ALERT] no handler for this record in this build; its key waits"
        ),
        Signal::Undecodable { record, lane, record_type, error } => tracing::error!(
            target: "keylane", record, partition = %lane.partition, handler = %lane.handler, record_type, error,
            "[ALERT] this build cannot decode this record; its key waits"
        ),
        Signal::Quarantined { record, partition, belongs } => tracing::error!(
            target: "keylane", record, %partition, %belongs, "[ALERT] record stood in a wrong partition"
        ),
        _ => return false,
    }
    true
}

impl LogObserver {
    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
