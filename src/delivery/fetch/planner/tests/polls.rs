//! What a poll fetches, and what follows.

use super::*;

#[tokio::test(start_paused = true)]
async fn with_nothing_to_do_a_fetch_is_an_interval_away() {
    let mut stage = Stage::new();
    assert_eq!(stage.fetch(false), Some(0), "the first");
    stage.advance();
    assert_eq!(stage.fetch(false), Some(0), "the first poll is at once");
    assert_eq!(stage.fetch(false), None);
    let pause = stage.planner.next_timer(stage.now) - stage.now;
    let interval = config().poll_interval;
    assert!(pause >= interval.mul_f64(0.89) && pause <= interval.mul_f64(1.11), "{pause:?}");
}

/// A poll is no reason of this process: it may be left out while nobody commits.
#[tokio::test(start_paused = true)]
async fn a_poll_fetches_and_searches_for_what_others_made_pending() {
    let mut stage = Stage::new();
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    stage.now = stage.planner.next_timer(stage.now);
    assert!(stage.planner.fire(0, stage.now), "the first poll");
    let mut request = stage.begin().expect("a poll fetches");
    assert!(request.due && !request.asked);
    assert_eq!(
        request.reading.next(),
        Statement::FetchByPartition,
        "from the heads, which nothing keeps busy"
    );
    stage.answer(request, &[], (0, false));
    assert!(!stage.planner.fire(0, stage.now), "not twice");
    // With records in memory, every fifth poll searches for the head.
    let polls: Vec<bool> = (2..=10)
        .map(|_| {
            stage.now += 2 * config().poll_interval;
            assert!(stage.planner.fire(1, stage.now));
            !std::mem::take(&mut stage.planner.missed).is_empty()
        })
        .collect();
    assert_eq!(polls, [false, false, false, true, false, false, false, false, true]);
    stage.planner.due_in(Duration::from_secs(1), stage.now);
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    stage.now += Duration::from_secs(1) + Duration::from_millis(5);
    assert!(!stage.planner.fire(1, stage.now), "a record is due, and no poll");
    let request = stage.begin().expect("it is fetched");
    assert!(request.due && !request.asked);
    stage.answer(request, &[], (0, false));
    stage.planner.due_in(Duration::from_secs(1), stage.now);
    stage.planner.want();
    stage.now += Duration::from_secs(1) + Duration::from_millis(5);
    stage.planner.fire(1, stage.now);
    assert!(stage.begin().unwrap().asked, "there was a reason before");
}

/// A search of a few partitions was quick: the poll goes on with the others.
#[tokio::test(start_paused = true)]
async fn a_quick_search_of_a_few_partitions_goes_on_with_the_others() {
    let mut stage = Stage::new();
    stage.planner.head_search.fetched(1_000_000);
    let few = stage.planner.head_search.next(1, false).expect("a search");
    let request = stage.begin().expect("the first fetch");
    let walked = Some((few.len(), Duration::from_micros(100)));
    let result = FetchResult { walked, ..empty(request, Vec::new()) };
    stage.planner.answered(&result, PartitionSet::EMPTY, stage.now);
    assert_eq!(stage.planner.missed, PartitionSet::ALL.without(few));
    assert!(stage.begin().is_some());
}

/// Nobody has told of a record that a poll has brought: more are likely to come so.
#[tokio::test(start_paused = true)]
async fn what_a_poll_has_found_is_followed_by_more_fetches() {
    for (new, admitted, follows) in [(true, 1, true), (true, 0, false), (false, 1, false), (false, 0, false)]
    {
        let mut stage = Stage::new();
        stage.fetch_of(PartitionSet::ALL, &[], (0, false));
        stage.advance();
        let request = stage.begin().expect("a poll fetches");
        assert!(!request.asked);
        let result = FetchResult { new, ..empty(request, vec![fixtures::record(1, "a").into()]) };
        stage.take(&result, admitted);
        assert_eq!(stage.planner.listening.next().is_some(), follows, "{new} {admitted}");
    }
}

/// The transaction of the settle is a witness: what draws its number later draws higher ids.
#[tokio::test(start_paused = true)]
async fn the_number_of_a_settle_goes_with_the_next_fetch() {
    let reading = |number| {
        let mut stage = Stage::new();
        stage.planner.settle_begins();
        stage.planner.settle_ends(number);
        stage.begin().unwrap().reading
    };
    assert_ne!(reading(Some((7, Server::default()))), reading(None));
}
