//! Messages that cannot be handled.

use std::time::Duration;

use keylane::{HandlerError, RetryPolicy};
use keylane_consumer::{Consumer, Declared, message_handler};
use rdkafka::Message as _;

use crate::{
    away::BROKER,
    broker,
    stage::{Effects, Seen, Told, config, take},
};

fn message(key: &str, number: usize, body: &str) -> (String, String, String) {
    (key.to_owned(), format!("{key}-{number}"), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_stops_its_key_and_ends_among_the_dead_letters_with_its_error() {
    let _shared = BROKER.read().await;
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

/// The first of its arguments is in the transaction, and the second is decoded.
#[message_handler(topic = "numbers", group = "numbers")]
async fn note_seven(tx: &mut sqlx::PgConnection, number: Number) -> Result<(), sqlx::Error> {
    assert_eq!(number.number, 7);
    sqlx::query("INSERT INTO tc_seven VALUES ($1)").bind(number.topic).execute(tx).await.map(drop)
}

#[derive(serde::Deserialize)]
struct Number {
    number: u32,
    topic: String,
}

#[tokio::test]
async fn a_declared_handler_is_for_its_group_only() {
    let effects = Effects::new().await;
    assert_eq!(<note_seven as Declared>::TOPIC, "numbers");
    let other =
        Consumer::builder(config("letters")).transactional_handler(effects.inbox.clone(), note_seven {});
    let error = other.start().unwrap_err().to_string();
    assert_eq!(
        error,
        "the handler of numbers is for the group numbers, but the consumer is in the group letters"
    );
    effects.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_failure_is_not_tried_again() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic_of(1).await, broker::topic_of(1).await);
    let seven = format!(r#"{{"number":7,"topic":"{topic}"}}"#);
    broker::send(&topic, [message("a", 0, "{"), message("a", 1, &seven)]).await;
    let effects = Effects::new().await;
    effects.execute("CREATE TABLE IF NOT EXISTS tc_seven (topic text)").await;
    let group = broker::unused_name();
    let consumer = Consumer::builder(config(&group))
        .transactional(topic.as_str(), effects.inbox.clone(), note_seven {})
        .dead_letters(dead.as_str())
        .start()
        .unwrap();
    broker::until_committed(&topic, &group, 2).await;
    assert!(consumer.shutdown().await.graceful);
    let noted = sqlx::query("DELETE FROM tc_seven WHERE topic = $1").bind(&topic);
    assert_eq!(noted.execute(effects.inbox.pool()).await.unwrap().rows_affected(), 1);
    effects.end().await;
    let letters = broker::read(&dead).await;
    assert_eq!(broker::headers(&letters[0])["keylane-attempts"], "1");
}
