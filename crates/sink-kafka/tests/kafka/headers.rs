//! What a consumer sees of a record.

use keylane::{RawEvent, ScheduleOptions};
use keylane_kafka::route;
use rdkafka::Message as _;

use crate::{
    away::BROKER,
    broker,
    stage::{Identity, Stage, sink},
};

#[tokio::test]
async fn a_message_is_a_cloud_event() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let registration = route(sink(|config| config.source("/shop")).skip_unrouted())
        .events(["order.*"])
        .to(&topic)
        .key(|record| record.delivery.key.to_string())
        .header("team", "sales")
        .registration("kafka");
    let mut stage = Stage::of([registration]).await;
    stage.schedule("refund.paid", [("skipped".to_owned(), "x".to_owned())]).await;
    stage.schedule("order.placed", [("key-1".to_owned(), "the body".to_owned())]).await;
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    let messages: Vec<_> = content.messages().collect();
    assert_eq!(messages.len(), 1, "what no route takes is skipped");
    assert_eq!(messages[0].payload(), Some("the body".as_bytes()));
    assert_eq!(messages[0].key(), Some("key-1".as_bytes()));
    let mut headers = broker::headers(messages[0]);
    let Identity { event_id, traceparent } = stage.identity(["order.placed", "key-1", "the body"]);
    assert_eq!(headers.remove("ce_id"), Some(event_id));
    let expected = [
        ("ce_partitionkey", "key-1"),
        ("ce_sequence", "00000000000000000002"),
        ("ce_source", "/shop"),
        ("ce_specversion", "1.0"),
        ("ce_traceparent", &*traceparent),
        ("ce_type", "order.placed"),
        ("content-type", "application/json"),
        ("team", "sales"),
        ("traceparent", &*traceparent),
    ];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, expected);
    stage.end().await;
}

#[tokio::test]
async fn a_sink_is_given_what_its_routes_take_and_nothing_else() {
    let _shared = BROKER.read().await;
    let (orders, refunds) = (broker::topic(&[]).await, broker::topic(&[]).await);
    let target = refunds.clone();
    let registration = route(sink(|config| config))
        .events(["order.*"])
        .to(&orders)
        .route()
        .events(["refund.paid"])
        .to_by(move |_| target.clone())
        .registration("kafka");
    let mut stage = Stage::of([registration]).await;
    let invoice = RawEvent::new("invoice.sent", "key-1", "x");
    let refused = stage
        .outbox
        .transaction(async |tx| stage.outbox.schedule_raw(tx, invoice, ScheduleOptions::new()).await);
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("invoice.sent"), "{refused}");
    stage.schedule("order.placed", [("key-1".to_owned(), "1".to_owned())]).await;
    stage.schedule("refund.paid", [("key-1".to_owned(), "2".to_owned())]).await;
    stage.until_idle().await;
    assert_eq!(broker::read(&orders).await.first_occurrences("key-1"), ["1"]);
    assert_eq!(broker::read(&refunds).await.first_occurrences("key-1"), ["2"]);
    stage.end().await;
}
