//! Decides what to do with a record that a fetch has brought: a pure function.

use super::{lane::LaneState, releases::Release};
use crate::{partition::Partition, record::RecordId};

/// What to do with a fetched record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Miss the record: it stays in the database and is fetched again. Admitted now, it could overtake an
    /// earlier one.
    Miss,
    /// Fail the record: its key belongs to another partition than its row, so no order can be kept.
    Misplaced { belongs: Partition },
    /// Hold the record behind `behind`, which stops its lane.
    Hold { behind: RecordId },
    /// Queue the record. `stops_lane`: the record has stopped its lane, and its next attempt has come.
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
        // The step under way may have returned this record, and the next fetch brings the records behind it.
        Some(release) if release.may_have_moved() => Admission::Miss,
        Some(release) => Admission::Hold { behind: release.record },
        None => match stop.filter(|_| !stops_lane) {
            Some(stop) => Admission::Hold { behind: stop.record },
            None => Admission::Queue { stops_lane },
        },
    }
}
