//! New topics: a topic is made before its partitions have leaders.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};

/// Waits until all partitions of a new topic have leaders. Until then the broker refuses messages for it.
pub(crate) async fn await_leaders(mut client: ClientConfig, topic: &str, partitions: i32) {
    let topic = topic.to_owned();
    let wait = move || {
        let consumer: BaseConsumer = client.set("group.id", "none").create().unwrap();
        let leads = |partition| {
            let led = consumer.fetch_watermarks(&topic, partition, Duration::from_secs(1)).is_ok();
            if !led {
                drop(consumer.poll(Duration::from_millis(20)));
            }
            led
        };
        for partition in 0..partitions {
            assert!((0..5_000).any(|_| leads(partition)), "partition {partition} of {topic} has no leader");
        }
    };
    tokio::task::spawn_blocking(wait).await.unwrap();
}
