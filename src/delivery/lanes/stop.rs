//! What is known of stopped lanes, and when what the database says may overrule it.

use crate::record::{RecordId, StopReason};

/// A lane that stands still, as remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopState {
    /// The record that stops the lane.
    pub(super) record: RecordId,
    /// Why. Never changes.
    pub(super) reason: StopReason,
    /// The fetch during or before which its row became durable; `None` while the write is under way. A list of
    /// stops read by that fetch or an earlier one may not have the row yet.
    pub(super) durable_since: Option<u64>,
    /// This instance has stopped the lane itself, not only read that it is stopped.
    pub(super) own: bool,
}

impl StopState {
    /// A stop that is about to be written.
    pub(super) fn by_this_instance(record: RecordId, reason: StopReason) -> Self {
        Self { record, reason, durable_since: None, own: true }
    }

    /// Whether a list of stops read by fetch `seq` that lacks this one means that it was released.
    pub(super) fn is_refuted_by(&self, seq: u64) -> bool {
        self.durable_since.is_some_and(|since| since < seq)
    }

    /// Whether a person or another build is to end it.
    pub(super) fn waits_for_others(&self) -> bool {
        matches!(self.reason, StopReason::Blocked | StopReason::Unroutable)
    }

    /// Whether an instance that knows the handler may try its luck: another has stopped the lane as
    /// unroutable. If this one did, the handler does not take the record's type, and trying again
    /// would move the lane's records out of the way and back for ever.
    pub(super) fn may_be_adopted(&self) -> bool {
        self.reason == StopReason::Unroutable && !self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_read_before_the_stop_was_durable_says_nothing() {
        let stop = |durable_since| StopState {
            durable_since,
            ..StopState::by_this_instance(1, StopReason::Blocked)
        };
        assert!(!stop(None).is_refuted_by(9));
        assert!(!stop(Some(9)).is_refuted_by(9));
        assert!(stop(Some(8)).is_refuted_by(9));
    }
}
