//! Messages that cannot be handled.

use std::time::Duration;

use keylane::{HandlerError, RetryPolicy};
use keylane_consumer::Consumer;
use rdkafka::Message as _;

use crate::{
    broker,
    stage::{Seen, Told, config, take},
};

fn message(key: &str, number: usize, body: &str) -> (String, String, String) {
    (key.to_owned(), format!("{key}-{number}"), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_stops_its_key_and_ends_among_the_dead_letters_with_its_error() {
    let (topic, dead) = (broker::topic_of(1).await, broker::topic_of(1).await);
    let mut messages = vec![message("bad", 0, "poison"), message("bad", 1, "after")];
    messages.extend((0..50).map(|number| message("good", number, &number.to_string())));
    broker::send(&topic, messages).await;
    let (handler, mut seen) = Told::new(async |(_, body): Seen| match &*body {
        "poison" => Err(HandlerError::new("no such account").class("account")),
        _ => Ok(()),
    });
    let retry = RetryPolicy::fixed(Duration::from_millis(400)).jitter(0.0).max_retries(2);
    let group = broker::unused_name();
    let consumer = Consumer::builder(config(&group).retry(retry))
        .topic(topic.as_str(), handler)
        .dead_letters(dead.as_str())
        .start()
        .unwrap();
    let seen = take(&mut seen, 51).await;
    // The other key of the partition has not waited, and its own has.
    assert_eq!(seen[50], ("bad".to_owned(), "after".to_owned()));
    assert!(consumer.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 52);

    let [letter] = &*broker::read(&dead).await else { panic!("one dead letter") };
    assert_eq!((letter.key(), letter.payload()), (Some(&b"bad"[..]), Some(&b"poison"[..])));
    let headers = broker::headers(letter);
    let expected = [
        ("keylane-target", &*topic),
        ("keylane-partition", "0"),
        ("keylane-offset", "0"),
        ("keylane-handler", &*group),
        ("keylane-event-id", "bad-0"),
        ("keylane-attempts", "3"),
        ("keylane-error-kind", "error"),
        ("keylane-error-class", "account"),
        ("keylane-error", "no such account"),
        ("ce_id", "bad-0"),
        ("ce_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    for (name, value) in expected {
        assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_failure_is_not_tried_again() {
    let (topic, dead) = (broker::topic_of(1).await, broker::topic_of(1).await);
    broker::send(&topic, [message("a", 0, "{"), message("a", 1, "7")]).await;
    let (handler, mut seen) = Told::new(async |(_, body): Seen| {
        let number: u32 = body.parse().map_err(HandlerError::permanent)?;
        assert_eq!(number, 7);
        Ok(())
    });
    let consumer = Consumer::builder(config(&broker::unused_name()))
        .topic(topic.as_str(), handler)
        .dead_letters(dead.as_str())
        .start()
        .unwrap();
    assert_eq!(take(&mut seen, 1).await[0].1, "7");
    assert!(consumer.shutdown().await.graceful);
    let letters = broker::read(&dead).await;
    assert_eq!(broker::headers(&letters[0])["keylane-attempts"], "1");
}
