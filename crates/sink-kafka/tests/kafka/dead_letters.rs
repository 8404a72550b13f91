//! Records that fail for good and go to the dead letters of their route.

use std::time::Duration;

use keylane::{RawEvent, ScheduleOptions, Signal, admin::Filter};
use keylane_kafka::Route;

use crate::{
    away::{Away, BROKER},
    broker,
    stage::{Stage, in_turns, numbers, sink},
};

/// Numbers, one of which no topic with a limit of 20,000 bytes takes.
fn events() -> impl Iterator<Item = (String, String)> {
    in_turns(3, 0, 20).map(|(key, body)| match (key.as_str(), body.as_str()) {
        ("key-0", "5") => (key, "x".repeat(50_000)),
        _ => (key, body),
    })
}

const SMALL: &[(&str, &str)] = &[("max.message.bytes", "20000")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_goes_to_the_dead_letters_and_its_key_goes_on() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic(SMALL).await, broker::topic(&[]).await);
    let route = Route::to(&topic).dead_letters(&dead);
    let mut stage = Stage::of([sink(|config| config).route(route).registration("kafka")]).await;
    stage.schedule("order.placed", events()).await;
    stage.until_idle().await;
    let failed = stage.end().await.failures().len();
    assert_eq!(failed, 0, "it is completed");
    let content = broker::read(&topic).await;
    for key in ["key-0", "key-1", "key-2"] {
        let expected: Vec<String> = (0..20)
            .filter(|number| (key, *number) != ("key-0", 5))
            .map(|number| number.to_string())
            .collect();
        assert_eq!(content.first_occurrences(key), expected, "{key}");
    }
    let letters = broker::read(&dead).await;
    assert_eq!(letters.first_occurrences("key-0"), ["x".repeat(50_000)]);
    assert_eq!(letters.messages().count(), 1);
    let headers = broker::headers(letters.messages().next().unwrap());
    assert!(headers["keylane-error"].contains("Message size too large"), "{headers:?}");
    assert_eq!(headers["keylane-error-class"], "kafka-rejected");
    assert_eq!(headers["keylane-error-kind"], "error");
    assert_eq!(headers["keylane-attempts"], "1");
    assert_eq!(headers["keylane-target"], topic);
    assert_eq!(headers["keylane-handler"], "kafka");
    assert_eq!(
        (&headers["keylane-event-id"], headers["ce_type"].as_str()),
        (&headers["ce_id"], "order.placed")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_goes_to_the_table_and_its_key_goes_on() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic(SMALL).await, broker::topic(&[]).await);
    let sink = sink(|config| config)
        .route(Route::to(&topic).events(["order.*"]).dead_letter_table())
        .route(Route::to(&topic).dead_letters(&dead));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    stage.schedule("order.placed", events()).await;
    stage.schedule("other", [("key-9".to_owned(), "x".repeat(50_000))]).await;
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    assert_eq!(content.first_occurrences("key-0").len(), 19);
    let letters = stage.outbox.admin().dead_letters(&Filter::all(), 0, 100).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.lane.key.as_str(), letter.payload.len(), letter.attempts), ("key-0", 50_000, 1));
    assert!(letter.error.contains("Message size too large"), "{}", letter.error);
    assert_eq!(
        (letter.error_class.as_deref(), letter.error_kind.as_str()),
        (Some("kafka-rejected"), "error")
    );
    assert_eq!(letter.target, topic);
    assert_eq!(broker::read(&dead).await.messages().count(), 1, "the other route has a topic");
    let failed = stage.end().await.failures().len();
    assert_eq!(failed, 0, "they are completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_are_refused_too_leave_the_record_failed() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic(SMALL).await, broker::topic(SMALL).await);
    let sink = sink(|config| config)
        .route(Route::to(&topic).events(["lost"]))
        .route(Route::to(&topic).dead_letters(&dead));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    let is_failure = |signal: &Signal| matches!(signal, Signal::RecordFailed { .. });
    for record_type in ["order.placed", "lost"] {
        stage.schedule(record_type, [(record_type.to_owned(), "x".repeat(50_000))]).await;
        stage.until(is_failure).await;
    }
    let told = stage.end().await;
    let failures = told.failures();
    assert!(failures[0].contains("fallback: kafka did not take"), "{failures:?}");
    assert!(failures[0].contains(&topic) && failures[0].contains(&dead), "{failures:?}");
    assert!(failures[1].ends_with("fallback: the record's route has no dead letters"), "{failures:?}");
}

/// A record that expires goes to the dead letters without a call for its topic, so that of the two only the dead letters
/// are asked while both are away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_dead_letters_are_away_the_record_waits_and_no_attempt_counts() {
    let _alone = BROKER.write().await;
    let (topic, dead) = (broker::topic(&[]).await, broker::topic(&[]).await);
    let sink = sink(|config| config.patience(Duration::from_secs(1)));
    let route = Route::to(&topic).dead_letters(&dead);
    let mut stage = Stage::of([sink.route(route).registration("kafka")]).await;
    stage.schedule("order.placed", in_turns(1, 0, 1)).await;
    stage.until_idle().await;
    let away = Away::kill().await;
    let expiring = RawEvent::new("order.placed", "key-0", "1");
    let at_once = ScheduleOptions::new().expires_after(Duration::from_millis(1));
    let scheduled =
        stage.outbox.transaction(async |tx| stage.outbox.schedule_raw(tx, expiring, at_once).await);
    let event_id = scheduled.await.unwrap().event_id.to_string();
    stage.schedule("order.placed", in_turns(1, 2, 20)).await;
    // Twice: an attempt that counted would be seen in the letter.
    for _ in 0..2 {
        stage.until(|signal| matches!(signal, Signal::FallbackTaken { record: 2, .. })).await;
        stage.until(|signal| matches!(signal, Signal::TargetUnavailable { record: 2, .. })).await;
    }
    away.end().await;
    stage.until_all_delivered().await;
    stage.end_without_failure().await;
    let letters = broker::read(&dead).await;
    assert_eq!(letters.first_occurrences("key-0"), ["1"]);
    for letter in letters.messages() {
        let headers = broker::headers(letter);
        assert_eq!((&headers["ce_id"], headers["keylane-error-kind"].as_str()), (&event_id, "expired"));
        assert_eq!(headers["keylane-attempts"], "0");
    }
    let expected: Vec<String> = numbers(20).into_iter().filter(|number| number != "1").collect();
    assert_eq!(broker::read(&topic).await.first_occurrences("key-0"), expected);
}
