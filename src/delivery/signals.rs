//! The signal of a failed record, for all places that find one.

use crate::{
    record::{OnFailure, Record},
    rules::lifecycle::LaneRules,
    telemetry::Signal,
};

/// The replacement of an error text that the database refuses.
pub(super) const NO_TEXT: &str = "(the error text could not be stored)";

/// The error of a record that so many processes did not survive.
pub(super) fn crashed(crashes: u32) -> String {
    format!("crashed: the process ended {crashes} times while this record was handled")
}

/// The signal of a record that has failed for good.
pub(super) fn failed(record: &Record, attempts: u32, error: &str, rules: LaneRules) -> Signal {
    Signal::RecordFailed {
        record: record.delivery.id,
        event_id: record.delivery.event_id,
        trace_id: record.delivery.trace_id().map(str::to_owned),
        lane: record.lane(),
        attempts,
        error: error.to_owned(),
        blocked: rules.on_failure == OnFailure::Block,
    }
}
