//! Members that come and go.

use std::{collections::BTreeMap, time::Duration};

use keylane_consumer::{Consumer, Running};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    broker,
    stage::{Affect, Effects, Seen, bounded, config, take},
};

const MESSAGES: usize = 1200;

fn member(topic: &str, group: &str, effects: &Effects) -> (Running, UnboundedReceiver<Seen>) {
    let (called, seen) = unbounded_channel();
    let handler = Affect { effects: effects.clone(), called };
    let config = config(group).concurrency(4).max_ahead(20).drain_timeout(Duration::from_secs(30));
    let running = Consumer::builder(config).transactional(topic, effects.inbox.clone(), handler).start();
    (running.unwrap(), seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_loses_nothing_and_repeats_nothing() {
    let (topic, effects, group) = (broker::topic().await, Effects::new().await, broker::unused_name());
    let messages = (0..MESSAGES).map(|number| {
        let (key, body) = (format!("key-{}", number % 30), (number / 30).to_string());
        (key.clone(), format!("{key}-{body}"), body)
    });
    broker::send(&topic, messages).await;
    let (first, mut seen_first) = member(&topic, &group, &effects);
    let mut seen = take(&mut seen_first, 100).await;
    let (second, mut seen_second) = member(&topic, &group, &effects);
    // Both have work now.
    seen.extend(take(&mut seen_second, 50).await);
    assert!(bounded(first.shutdown()).await.graceful);
    while let Some(one) = seen_first.recv().await {
        seen.push(one);
    }
    let left = MESSAGES - seen.len();
    seen.extend(take(&mut seen_second, left).await);
    assert!(bounded(second.shutdown()).await.graceful);
    // Each was handled once: calls under way ended, and their offsets were committed, before another began.
    assert_eq!(seen_second.recv().await, None);
    assert_eq!(broker::committed(&topic, &group).await, MESSAGES as i64);
    let counts = effects.counts().await;
    assert!(counts.len() == MESSAGES && counts.iter().all(|(_, count)| *count == 1));
    let mut of_key: BTreeMap<String, usize> = BTreeMap::new();
    seen.iter().for_each(|(key, _)| *of_key.entry(key.clone()).or_default() += 1);
    assert!(of_key.values().all(|count| *count == MESSAGES / 30), "{of_key:?}");
    effects.end().await;
}
