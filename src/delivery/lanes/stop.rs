//! The stops of lanes in memory, and when a list from the database overrules them.

use crate::record::{RecordId, StopReason};

/// The stop of a lane, as this instance knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopState {
    /// The record that stops the lane.
    pub(super) record: RecordId,
    /// The reason of the stop. Never changes.
    pub(super) reason: StopReason,
    /// The number of the fetch during or before which the row of the stop became durable; `None` until then.
    /// A list read by that fetch or an earlier one may lack the row. Written when the write is durable.
    pub(super) durable_since: Option<u64>,
    /// Whether this instance has stopped the lane, so that the stop is not from a list. Never changes.
    pub(super) own: bool,
}

impl StopState {
    /// A stop whose write is not durable yet.
    pub(super) fn by_this_instance(record: RecordId, reason: StopReason) -> Self {
        Self { record, reason, durable_since: None, own: true }
    }

    /// Whether the stop was released, given that the list of fetch `seq` lacks it.
    pub(super) fn is_refuted_by(&self, seq: u64) -> bool {
        self.durable_since.is_some_and(|since| since < seq)
    }

    /// Whether only a person or another build ends the stop.
    pub(super) fn waits_for_others(&self) -> bool {
        matches!(self.reason, StopReason::Blocked | StopReason::Unroutable)
    }

    /// Whether an instance that knows the handler resumes the lane: another instance has stopped it as
    /// unroutable. If this instance has stopped it, the handler does not take the type of the record, and
    /// each resume would lead to the same stop.
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

    #[test]
    fn who_ends_a_stop_depends_on_its_reason() {
        let stop = |reason, own| StopState { own, ..StopState::by_this_instance(1, reason) };
        let tells = |reason| {
            let of_another = stop(reason, false);
            (of_another.waits_for_others(), of_another.may_be_adopted())
        };
        assert_eq!(tells(StopReason::Blocked), (true, false));
        assert_eq!(tells(StopReason::Unroutable), (true, true));
        assert_eq!(tells(StopReason::Retrying), (false, false));
        assert!(!stop(StopReason::Unroutable, true).may_be_adopted(), "its own would come again");
    }
}
