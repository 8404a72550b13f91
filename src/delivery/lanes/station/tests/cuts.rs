//! What leaves memory before it has run.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_long_queue_is_cut_to_half_of_its_share_and_the_rest_is_fetched_again() {
    let mut stage = Stage::new();
    (1..=8).for_each(|id| stage.fetch(id, "a"));
    (11..=13).for_each(|id| stage.fetch(id, "b"));
    let (a, b) = (Partition::of("a"), Partition::of("b"));
    assert!(stage.lanes.cut_queues(9).is_empty(), "none is as long");
    assert_eq!(stage.lanes.cut_queues(4), [a].into_iter().collect());
    assert_eq!(in_memory(&stage), [1, 2, 11, 12, 13]);
    let wishes = stage.wishes();
    assert!(wishes.missed.contains(a) && !wishes.missed.contains(b));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_cut_by_the_lanes_with_the_youngest_heads() {
    let mut stage = Stage::new();
    for (id, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "a"), (5, "b"), (6, "c")] {
        stage.fetch(id, key);
    }
    stage.lanes.cut_handler(1, 0);
    assert_eq!(in_memory(&stage).len(), 6, "another handler");
    assert_eq!([0, 1].map(|number| stage.lanes.of_handler(number)), [6, 0]);
    stage.lanes.cut_handler(0, 6);
    assert_eq!(in_memory(&stage).len(), 6, "it has no more than its share");
    stage.lanes.cut_handler(0, 3);
    assert_eq!(in_memory(&stage), [1, 4]);
}

/// The rows of one lane in the fetch under way do not count; those of another do.
#[tokio::test(start_paused = true)]
async fn a_lane_that_changes_during_a_fetch_is_missed_alone() {
    let mut stage = Stage::new();
    (1..=4).for_each(|id| stage.fetch(id, "a"));
    stage.lanes.begin_fetch();
    stage.lanes.cut_queues(4);
    stage.wishes();
    stage.fetch(3, "a");
    assert_eq!(in_memory(&stage), [1, 2]);
    assert!(missed(&mut stage));
    stage.fetch(9, "b");
    assert_eq!(in_memory(&stage), [1, 2, 9]);
    assert!(!missed(&mut stage));
    stage.lanes.end_fetch();
    stage.fetch(3, "a");
    assert_eq!(in_memory(&stage), [1, 2, 3, 9]);
}

/// A partition is given up while another one goes on.
#[tokio::test(start_paused = true)]
async fn only_what_is_in_closed_partitions_is_abandoned() {
    let mut stage = Stage::new();
    for (id, key) in [(1, "a"), (2, "b"), (3, "c")] {
        stage.fetch(id, key);
    }
    assert_eq!(stage.lanes.partition_of(LaneId(0)), Some(Partition::of("a")));
    stage.suspect("b", (1, 9, 1));
    stage.suspect("c", (1, 8, 1));
    stage.list(&["b", "c"].map(|key| stop(key, StopReason::Releasing, 10)));
    stage.lanes.close(|partition| partition != Partition::of("b"));
    assert_eq!((in_memory(&stage), stage.lanes.releasing()), (vec![1, 3], set("c")));
    let care = |stage: &Stage, key, id| stage.lanes.0.suspects.care(Partition::of(key), Some(id));
    assert_eq!((care(&stage, "b", 9), care(&stage, "c", 8)), (Care::Usual, Care::Alone));
    assert_eq!(stage.wishes().missed, set("b"));
}

/// A run ends before its records were tried. If the partition was given up meanwhile, they are not kept.
#[tokio::test(start_paused = true)]
async fn what_was_not_tried_waits_again_unless_its_partition_was_given_up() {
    for (given_up, kept) in [(false, vec![1, 2]), (true, vec![])] {
        let mut stage = Stage::new();
        (1..=2).for_each(|id| stage.fetch(id, "a"));
        let mut run = stage.lanes.next_run(fixtures::PLAIN, Instant::now()).unwrap();
        if given_up {
            stage.ownership.grant(&[(Partition::of("a"), Generation(9))]);
        }
        run.lanes[0].over = true;
        stage.wishes();
        stage.lanes.land(Run { goes_on: false, ..run });
        assert_eq!((in_memory(&stage), stage.wishes().fetch), (kept, given_up));
    }
}

/// The next owner may have settled the lost one, so what waits behind it is fetched again with it.
#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_lost_record_is_given_up() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    let mut run = stage.lanes.next_run(fixtures::PLAIN, Instant::now()).unwrap();
    stage.fetch(2, "a");
    run.lanes[0].end(Outcome::Lost);
    run.lanes[0].over = true;
    stage.wishes();
    stage.lanes.land(Run { goes_on: false, ..run });
    assert_eq!((in_memory(&stage), stage.wishes().fetch), (vec![], true));
}
