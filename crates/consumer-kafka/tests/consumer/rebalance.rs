//! Members that come and go.

use std::{collections::BTreeSet, time::Duration};

use keylane_consumer::{Consumer, Running};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, bounded, config, take},
};

const PARTITIONS: usize = 6;
const EACH: usize = 400;

/// Without an inbox, so that a repetition is seen.
fn member(topic: &str, group: &str) -> (Running, UnboundedReceiver<Seen>) {
    let (handler, seen) = Told::new(async |_: Seen| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(())
    });
    let config = config(group).concurrency(4).drain_timeout(Duration::from_secs(30));
    (Consumer::builder(config).topic(topic, handler).start().unwrap(), seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_loses_nothing_and_repeats_nothing_that_ended() {
    let _shared = BROKER.read().await;
    let (topic, group) = (broker::topic().await, broker::unused_name());
    // One key in each partition, so that what is finished is always what comes first. Four calls at once: whichever
    // half of the partitions goes to the other member, calls are under way there.
    let messages = (0..EACH * PARTITIONS).map(|number| {
        let (key, body) = (format!("partition-{}", number % PARTITIONS), (number / PARTITIONS).to_string());
        (key.clone(), format!("{key}-{body}"), body)
    });
    broker::send(&topic, messages).await;
    let (first, mut seen_first) = member(&topic, &group);
    let mut seen = take(&mut seen_first, 100).await;
    let (second, mut seen_second) = member(&topic, &group);
    // Both have work now.
    seen.extend(take(&mut seen_second, 50).await);
    assert!(bounded(first.shutdown()).await.graceful);
    while let Some(one) = seen_first.recv().await {
        seen.push(one);
    }
    let left = EACH * PARTITIONS - seen.len();
    seen.extend(take(&mut seen_second, left).await);
    assert!(bounded(second.shutdown()).await.graceful);
    assert_eq!(seen_second.recv().await, None, "a message was handled twice");
    assert_eq!(seen.into_iter().collect::<BTreeSet<Seen>>().len(), EACH * PARTITIONS);
    assert_eq!(broker::committed(&topic, &group).await, (EACH * PARTITIONS) as i64);
}
