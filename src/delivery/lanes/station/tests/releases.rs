//! Lanes whose held records return in steps.

use super::*;

/// The step may be written although no list tells so, and may have returned the record. If the record were
/// held now, the next fetch would bring the records behind it.
#[tokio::test(start_paused = true)]
async fn nothing_is_held_behind_a_release_that_may_have_moved() {
    let mut stage = Stage::new();
    stage.list(&[stop("a", StopReason::Releasing, 10)]);
    stage.fetch(20, "a");
    assert_eq!(stage.waiting(), [(20, "hold")]);
    stage.settle(0);
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    stage.lanes.ask_for_steps(Duration::ZERO, Instant::now());
    assert_eq!(stage.waiting(), [(1, "release")]);
    stage.fetch(11, "a");
    assert!(missed(&mut stage), "the step may have returned it");
    stage.fetch(5, "a");
    stage.run(completed);
    assert_eq!(stage.waiting().last(), Some(&(5, "complete")), "that was returned before");
}

/// Between two steps, the next list of stops tells how far the last one went.
#[tokio::test(start_paused = true)]
async fn a_lane_that_is_released_in_steps_goes_on_step_by_step() {
    let mut stage = Stage::new();
    let stop = |released_to| stop("a", StopReason::Releasing, released_to);
    let step = |stage: &mut Stage| {
        stage.lanes.ask_for_steps(Duration::ZERO, Instant::now());
        stage.waiting().contains(&(1, "release"))
    };
    stage.list(&[stop(10)]);
    assert_eq!(stage.lanes.releasing(), set("a"));
    assert!(!step(&mut stage), "what was returned is not fetched yet");
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    assert!(step(&mut stage));
    stage.settle(0);
    let wishes = stage.wishes();
    assert!(wishes.stops == set("a") && wishes.released == set("a") && wishes.fetch);
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    stage.list(&[stop(10)]);
    assert!(!step(&mut stage), "the list was read before the step");
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    assert!(step(&mut stage), "it is asked for again, because the row says that none was written");
    stage.settle(0);
    stage.list(&[stop(20)]);
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    assert!(step(&mut stage));
    stage.settle(0);
    stage.list(&[]);
    assert!(stage.lanes.releasing().is_empty() && stage.wishes().fetch, "the last step has ended it");
}

/// A record of it fails while its held records return.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_release_in_steps() {
    let mut stage = Stage::new();
    stage.list(&[stop("a", StopReason::Releasing, 10)]);
    stage.fetch(5, "a");
    stage.run(retried);
    assert!(stage.lanes.releasing().is_empty());
    let stops = stage.waiting();
    assert_eq!(stops, [(1, "other"), (5, "retry")], "the row of the stop names another record");
}

/// So many records are held that they return in steps: the row of the lane tells how far they are.
#[tokio::test(start_paused = true)]
async fn the_stops_of_a_lane_that_goes_on_in_steps_are_read() {
    for (releasing, read) in [(0, PartitionSet::EMPTY), (1, set("a"))] {
        let mut stage = Stage::new();
        let stops = [stop("a", StopReason::Retrying, 0)];
        stage.list(&stops);
        stage.lanes.resume_unstopped(&stops, |_| true);
        stage.wishes();
        let mut batch = Batch::default();
        stage.writes.drain(..).for_each(|write| batch.push(write));
        stage.lanes.settled(&batch, &Settled { releasing, ..Settled::default() });
        assert_eq!(stage.wishes().stops, read);
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_its_pause_and_for_memory() {
    let (mut stage, now, pause) = (Stage::new(), Instant::now(), Duration::from_secs(1));
    assert!(!stage.lanes.ask_for_steps(pause, now), "no lane is released");
    stage.list(&[stop("a", StopReason::Releasing, 10)]);
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    assert!(stage.lanes.ask_for_steps(pause, now));
    assert_eq!((stage.waiting().len(), stage.lanes.next_step()), (1, None));
    stage.settle(0);
    stage.list(&[stop("a", StopReason::Releasing, 20)]);
    stage.lanes.fetched_all_of(PartitionSet::ALL);
    stage.lanes.ask_for_steps(pause, now);
    assert_eq!((stage.waiting().len(), stage.lanes.next_step()), (0, Some(now + pause)));
    // A record of the lane is on its way to be held: a step would return it at once.
    stage.fetch(30, "a");
    assert_eq!(stage.waiting(), [(30, "hold")]);
    stage.lanes.ask_for_steps(pause, now + pause);
    assert_eq!((stage.waiting().len(), stage.lanes.next_step()), (1, None));
    stage.settle(0);
    stage.fetch(15, "a");
    stage.lanes.ask_for_steps(pause, now + pause);
    assert_eq!(stage.waiting(), [(1, "release")], "what was returned before runs meanwhile");
}
