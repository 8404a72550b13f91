//! How lanes stop, go on and wait for their holds.

use super::*;
use crate::{partition::Partition, record::StopReason};

fn stopped() -> (Lanes, Lane) {
    let lane = Lane { partition: Partition::of("a"), key: "a".into(), handler: "h".into() };
    let mut lanes = Lanes::default();
    lanes.stop(&lane, StopState::by_this_instance(1, StopReason::Retrying));
    (lanes, lane)
}

#[test]
fn a_lane_that_goes_on_waits_for_its_holds_to_end() {
    let (mut lanes, lane) = stopped();
    lanes.hold_begins(&lane);
    lanes.hold_begins(&lane);
    assert!(!lanes.standing(&lane).would_overtake, "what comes now is held, too");
    assert!(lanes.resume(&lane, 1));
    assert!(lanes.standing(&lane).would_overtake);
    assert!(lanes.hold_ends(&lane), "it is to be looked at again");
    assert!(lanes.standing(&lane).would_overtake);
    lanes.hold_ends(&lane);
    assert!(!lanes.standing(&lane).would_overtake);
    assert!(lanes.lanes.is_empty(), "nothing is kept of a lane that is idle");
}

#[test]
fn a_record_that_stops_its_lane_no_more_leaves_the_stop_of_a_later_one() {
    let (mut lanes, lane) = stopped();
    lanes.stop(&lane, StopState::by_this_instance(2, StopReason::Retrying));
    assert!(!lanes.resume(&lane, 1));
    assert_eq!(lanes.stop_of(&lane).map(|stop| stop.record), Some(2));
    assert!(lanes.resume(&lane, 2));
    assert_eq!(lanes.stop_of(&lane), None);
}

#[test]
fn holds_are_counted_on_when_a_lane_is_given_up() {
    let (mut lanes, lane) = stopped();
    lanes.hold_begins(&lane);
    lanes.abandon_where(|_| true);
    assert!(lanes.standing(&lane).would_overtake);
}
