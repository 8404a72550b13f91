//! Dead letters by the file.

use super::{
    broker::{arrived, is_in_order, topic, unused_topic},
    process::Settings,
    stage::{Producer, settings},
};
use crate::keylane::on_postgres;

#[tokio::test]
async fn what_kafka_refuses_goes_to_the_dead_letters_of_its_route() {
    on_postgres("relay_dead", async |url| {
        let (missing, letters) = (unused_topic(), topic().await);
        let text = settings(url, &[("order.placed", &missing)]);
        let text = text.replace("[relay.kafka]", "[relay.kafka]\npatience = '2s'");
        let file = Settings::new("dead", &format!("{text}dead_letters = '{letters}'\n"));
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        Producer::connect(url).await.schedule("order.placed", 3, 0, 4).await;
        is_in_order(&arrived(&letters, 12).await, 3, 4);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}
