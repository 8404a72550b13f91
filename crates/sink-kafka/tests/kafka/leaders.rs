//! New topics: a topic is made before its partitions have leaders.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};
use tokio::time::Instant;

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// A broker that has just started may name no brokers. A client then forgets all that it knew, and never connects again
/// (librdkafka, issue 5301), so another client asks.
pub(crate) const PATIENCE_WITH_A_CLIENT: Duration = Duration::from_secs(10);

/// Waits until all partitions of a new topic have leaders. Until then the broker refuses messages for it.
pub(crate) async fn await_leaders(mut client: ClientConfig, topic: &str, partitions: i32) {
    let topic = topic.to_owned();
    let wait = move || {
        client.set("group.id", "none");
        let open = || -> (BaseConsumer, Instant) { (client.create().unwrap(), Instant::now()) };
        let began = Instant::now();
        let (mut consumer, mut opened) = open();
        for partition in 0..partitions {
            while consumer.fetch_watermarks(&topic, partition, Duration::from_secs(1)).is_err() {
                assert!(began.elapsed() < PATIENCE, "partition {partition} of {topic} has no leader");
                drop(consumer.poll(Duration::from_millis(20)));
                if opened.elapsed() > PATIENCE_WITH_A_CLIENT {
                    (consumer, opened) = open();
                }
            }
        }
    };
    tokio::task::spawn_blocking(wait).await.unwrap();
}
