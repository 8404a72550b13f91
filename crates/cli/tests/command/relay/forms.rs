//! The form of a route.

use super::{
    away::BROKER,
    broker::{messages, topic},
    process::Settings,
    stage::{Producer, settings},
};
use crate::keylane::on_postgres;

#[tokio::test]
async fn a_message_has_the_form_that_its_route_names() {
    let _shared = BROKER.read().await;
    on_postgres("relay_form", async |url| {
        let topic = topic().await;
        let text = settings(url, &[("order.placed", &topic)]) + "form = 'cloud-events-json'\n";
        let file = Settings::new("form", &text);
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        Producer::connect(url).await.schedule("order.placed", 1, 0, 1).await;
        let arrived = messages(&topic, 1).await;
        assert_eq!(arrived[0].headers["content-type"], "application/cloudevents+json");
        let body: serde_json::Value = serde_json::from_str(&arrived[0].body).unwrap();
        assert_eq!((&body["type"], &body["partitionkey"]), (&"order.placed".into(), &"key-1".into()));
        assert_eq!((&body["source"], &body["data"]), (&"/keylane".into(), &0.into()));
        assert_eq!(body["id"].as_str().map(str::len), Some(36));
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}
