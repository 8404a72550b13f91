//! What a consumer sees of a record.

use keylane_kafka::Route;
use rdkafka::Message as _;

use crate::{
    away::BROKER,
    broker,
    stage::{Stage, sink},
};

#[tokio::test]
async fn a_message_is_a_cloud_event() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let route = Route::to(&topic).events(["order.*"]).header("team", "sales");
    let sink = sink(|config| config.source("/shop")).route(route).skip_unrouted();
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    stage.schedule("refund.paid", [("skipped".to_owned(), "x".to_owned())]).await;
    stage.schedule("order.placed", [("key-1".to_owned(), "the body".to_owned())]).await;
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    let messages: Vec<_> = content.messages().collect();
    assert_eq!(messages.len(), 1, "what no route takes is skipped");
    assert_eq!(messages[0].payload(), Some("the body".as_bytes()));
    assert_eq!(messages[0].key(), Some("key-1".as_bytes()));
    let mut headers = broker::headers(messages[0]);
    assert_eq!(headers.remove("ce_id").map(|id| id.len()), Some(36));
    let expected = [
        ("ce_partitionkey", "key-1"),
        ("ce_sequence", "00000000000000000002"),
        ("ce_source", "/shop"),
        ("ce_specversion", "1.0"),
        ("ce_traceparent", "00-trace-span-01"),
        ("ce_type", "order.placed"),
        ("content-type", "application/json"),
        ("team", "sales"),
        ("traceparent", "00-trace-span-01"),
    ];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, expected);
    stage.end().await;
}
