//! How far behind a member says that it is.

use std::{sync::Arc, time::Duration};

use keylane_consumer::{Consumer, Running};
use tokio::sync::Semaphore;

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, bounded, config, take},
};

/// Waits until the client has reported this lag, over all partitions of the topic.
async fn until_behind(consumer: &Running, topic: &str, messages: i64) {
    let is_behind = || {
        let lags = consumer.lag();
        assert!(lags.iter().all(|lag| lag.topic == topic && lag.messages >= 0), "{lags:?}");
        lags.len() == 2 && lags.iter().map(|lag| lag.messages).sum::<i64>() == messages
    };
    let reported = async {
        while !is_behind() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), reported).await;
    assert!(waited.is_ok(), "{messages} messages behind were expected, but it says {:?}", consumer.lag());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lag_rises_with_what_comes_and_falls_with_what_is_handled() {
    let _shared = BROKER.read().await;
    let (topic, group) = (broker::topic_of(2).await, broker::unused_name());
    let messages = |range: std::ops::Range<usize>| {
        range.map(|number| (format!("partition-{}", number % 2), number.to_string(), number.to_string()))
    };
    broker::send(&topic, messages(0..20)).await;
    let leave = Arc::new(Semaphore::new(0));
    let asked = Arc::clone(&leave);
    let (handler, mut seen) = Told::new(move |_: Seen| {
        let asked = Arc::clone(&asked);
        async move {
            asked.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    let config = config(&group).handler_timeout(Duration::from_secs(120));
    let consumer = Consumer::builder(config).topic(topic.as_str(), handler).start().unwrap();
    // Nothing was handled yet, and the group has committed nothing.
    until_behind(&consumer, &topic, 20).await;
    leave.add_permits(5);
    take(&mut seen, 5).await;
    until_behind(&consumer, &topic, 15).await;
    broker::send(&topic, messages(20..50)).await;
    until_behind(&consumer, &topic, 45).await;
    leave.add_permits(45);
    take(&mut seen, 45).await;
    until_behind(&consumer, &topic, 0).await;
    assert!(bounded(consumer.shutdown()).await.graceful);
}
