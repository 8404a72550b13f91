//! The observer that writes the log. Every outbox has it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Observer, Signal,
    outage::{Line, Outage},
};
use crate::{clock::Clock, name::Name};

/// Writes signals to `tracing`, target `keylane`. An outage of the database writes one line when it begins,
/// one line per minute and one when it ends, however many calls fail. A target that is unavailable writes a
/// line per minute and handler.
#[derive(Debug, Default)]
pub struct LogObserver {
    database: Mutex<Outage>,
    /// By handler. Added by the first signal of a handler; there are as many as handlers.
    targets: Mutex<HashMap<Name, Outage>>,
}

impl Observer for LogObserver {
    fn on(&self, signal: &Signal) {
        if alarm(signal) || self.target(signal) {
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
                target: "keylane", %partitions, "earlier owners have crashed here; handler calls are tracked"
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
            Signal::SignalsDropped { signals } => tracing::warn!(
                target: "keylane", signals, "an observer blocks or is too slow; signals were dropped for it"
            ),
            Signal::ShutdownForced { records } => {
                tracing::warn!(target: "keylane", records, "shutdown timeout: cancelled what was in flight");
            }
            Signal::StoreFailed { call, error } => match self.outage().failed(Clock::Boot.now()) {
                Some(Line::Begins) => tracing::warn!(
                    target: "keylane", call, error, "database calls fail; trying again, with a line per minute"
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
        Signal::TargetAway { handler, lasted, records } => tracing::error!(
            target: "keylane", %handler, ?lasted, records,
            "[ALERT] the handler's target has been unavailable for long; its records wait, no attempt counted"
        ),
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
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the signals about targets of handlers. Returns whether the signal was one of them.
    fn target(&self, signal: &Signal) -> bool {
        match signal {
            Signal::TargetUnavailable { record, lane, delay } => match self.unavailable(&lane.handler) {
                Some(Line::Begins) => tracing::warn!(
                    target: "keylane", record, partition = %lane.partition, handler = %lane.handler, ?delay,
                    "the handler's target is unavailable; trying again, no attempt counted, with a line per minute"
                ),
                Some(Line::GoesOn { lasted, failures }) => tracing::warn!(
                    target: "keylane", handler = %lane.handler, ?lasted, failures,
                    "the handler's target is still unavailable; trying again, no attempt counted"
                ),
                Some(Line::Ends { .. }) | None => tracing::trace!(target: "keylane", ?signal),
            },
            Signal::TargetBack { handler, lasted } => tracing::warn!(
                target: "keylane", %handler, ?lasted, "no record waits for the handler's target any more"
            ),
            _ => return false,
        }
        true
    }

    /// A record waits for the target of this handler. Returns the line to write.
    fn unavailable(&self, handler: &Name) -> Option<Line> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.entry(handler.clone()).or_default().failed(Clock::Boot.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outage of a target makes a signal for each try of each key.
    #[test]
    fn a_target_that_is_unavailable_has_a_line_for_each_handler_and_not_for_each_record() {
        let log = LogObserver::default();
        let [relay, hooks] = ["relay", "hooks"].map(Name::from);
        assert_eq!(log.unavailable(&relay), Some(Line::Begins));
        assert_eq!(log.unavailable(&hooks), Some(Line::Begins));
        assert!((0..1000).all(|_| log.unavailable(&relay).is_none()));
    }
}
