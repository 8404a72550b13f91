//! Members that come and go.

use std::{collections::BTreeSet, time::Duration};

use keylane_consumer::{Consumer, HandlerError, Message, Running, TransactionalMessageHandler};
use sqlx::{PgConnection, Postgres};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    away::BROKER,
    broker,
    stage::{Affect, Effects, Seen, Told, bounded, config, seen_of, take},
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

/// Has its effect, says so, and goes no further.
struct Hold {
    effects: Effects,
    called: UnboundedSender<Seen>,
}

impl TransactionalMessageHandler<Postgres> for Hold {
    async fn handle(&self, tx: &mut PgConnection, message: &Message) -> Result<(), HandlerError> {
        self.effects.affect(tx, message).await?;
        let _ = self.called.send(seen_of(message));
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_outlasts_the_drain_is_dropped_and_its_message_goes_to_the_other_member() {
    let _shared = BROKER.read().await;
    let (topic, group) = (broker::topic_of(2).await, broker::unused_name());
    let effects = Effects::new().await;
    let messages =
        ["partition-0", "partition-1"].map(|key| (key.to_owned(), key.to_owned(), "body".to_owned()));
    broker::send(&topic, messages).await;
    let limits = config(&group).drain_timeout(Duration::from_millis(500)).shutdown_timeout(Duration::ZERO);
    let limits = limits.handler_timeout(Duration::from_secs(3600));
    let (called, mut held) = unbounded_channel();
    let hold = Hold { effects: effects.clone(), called };
    let first = Consumer::builder(limits).transactional(&*topic, effects.inbox.clone(), hold);
    let first = first.start().unwrap();
    // Both calls are under way, and would never end.
    take(&mut held, 2).await;
    let (called, mut seen) = unbounded_channel();
    let affect = Affect { effects: effects.clone(), called };
    let second = Consumer::builder(config(&group));
    let second = second.transactional(&*topic, effects.inbox.clone(), affect).start().unwrap();
    let moved = take(&mut seen, 1).await.remove(0).0;
    assert!(!first.shutdown().await.graceful, "the other call is still under way");
    let other = take(&mut seen, 1).await.remove(0).0;
    assert_ne!(moved, other);
    assert!(bounded(second.shutdown()).await.graceful);
    let each = ["partition-0", "partition-1"].map(|key| (key.to_owned(), 1));
    assert_eq!(effects.counts().await, each);
    effects.end().await;
}
