//! What becomes of a record that a fetch has brought: a pure decision.

use super::{lane::LaneState, releases::Release};
use crate::{partition::Partition, record::RecordId};

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is left where it is, to be fetched again: taken now, it could overtake an earlier record.
    Miss,
    /// It stands in another partition than its key belongs to, so no order can be kept: it fails.
    Misplaced { belongs: Partition },
    /// It is held behind this record, which stops its lane.
    Hold { behind: RecordId },
    /// It is queued. `stops_lane`: it has stopped its lane, and its next attempt has come.
    Queue { stops_lane: bool },
}

/// Decides about a record of a lane. `state`: what is known of the lane; `release`: how far its held records
/// have returned, if they return in steps; `stale`: the lane has changed since the fetch began.
pub(super) fn admission(
    (id, partition, belongs): (RecordId, Partition, Partition),
    state: Option<&LaneState>,
    release: Option<Release>,
    stale: bool,
) -> Admission {
    let would_overtake = release.is_none() && state.is_some_and(LaneState::would_overtake);
    if stale || would_overtake {
        return Admission::Miss;
    }
    if belongs != partition {
        return Admission::Misplaced { belongs };
    }
    let stop = state.and_then(|state| state.stop);
    let stops_lane = stop.is_some_and(|stop| stop.record == id);
    match release.filter(|release| !release.is_before(id)) {
        // What comes may have been returned by the step under way, and the next fetch brings what follows.
        Some(release) if release.may_have_moved() => Admission::Miss,
        Some(release) => Admission::Hold { behind: release.record },
        None => match stop.filter(|_| !stops_lane) {
            Some(stop) => Admission::Hold { behind: stop.record },
            None => Admission::Queue { stops_lane },
        },
    }
}
