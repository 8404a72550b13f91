//! The signal of a failed record, for all places that find one.

use crate::{
    record::{OnFailure, Record},
    rules::lifecycle::LaneRules,
    telemetry::Signal,
};

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
