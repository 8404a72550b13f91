//! A broker that goes away in the middle and comes back.

use std::{sync::Arc, time::Duration};

use keylane::HandlerError;
use keylane_consumer::{Consumer, Message, TransactionalMessageHandler};
use sqlx::{PgConnection, Postgres};
use tokio::{
    sync::{Semaphore, mpsc::unbounded_channel},
    time::timeout,
};

use crate::{
    away::{Away, BROKER},
    broker,
    stage::{Affect, Effects, Told, bounded, config, take},
};

const MESSAGES: usize = 1200;

/// Each call needs a permit, so that messages are left when the broker has gone.
struct Permitted(Affect, Arc<Semaphore>);

impl TransactionalMessageHandler<Postgres> for Permitted {
    async fn handle(&self, tx: &mut PgConnection, message: &Message) -> Result<(), HandlerError> {
        self.1.acquire().await.unwrap().forget();
        self.0.handle(tx, message).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_and_each_effect_happens_once() {
    let _alone = BROKER.write().await;
    let (topic, effects, group) = (broker::topic().await, Effects::new().await, broker::unused_name());
    let messages = (0..MESSAGES).map(|number| {
        let key = format!("key-{}", number % 30);
        (key, format!("event-{number}"), (number / 30).to_string())
    });
    broker::send(&topic, messages).await;
    let (called, mut seen) = unbounded_channel();
    let permits = Arc::new(Semaphore::new(100));
    let handler = Permitted(Affect { effects: effects.clone(), called }, Arc::clone(&permits));
    // Little is in memory when the broker goes.
    let config = config(&group).concurrency(4).max_ahead(20).handler_timeout(Duration::from_secs(600));
    let config = config.property("queued.min.messages", "10").property("fetch.message.max.bytes", "1000");
    // A member that lost its partitions with the broker would be given again what it had not committed, and would still
    // be skipping it when the last message has been handled.
    let config = config.property("session.timeout.ms", "300000");
    let builder = Consumer::builder(config).transactional(topic.as_str(), effects.inbox.clone(), handler);
    let running = builder.start().unwrap();
    let mut handled = take(&mut seen, 100).await;
    let away = Away::kill().await;
    permits.add_permits(MESSAGES);
    // What is in memory is handled all the same.
    while let Ok(Some(one)) = timeout(Duration::from_millis(500), seen.recv()).await {
        handled.push(one);
    }
    away.end().await;
    assert!(handled.len() < MESSAGES, "all of them were in memory");
    let left = MESSAGES - handled.len();
    handled.extend(take(&mut seen, left).await);
    assert!(running.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, MESSAGES as i64);
    let counts = effects.counts().await;
    assert!(counts.len() == MESSAGES && counts.iter().all(|(_, count)| *count == 1));
    // The inbox skips what comes again, so the handler sees each message once, and each key in order.
    for key in (0..30).map(|key| format!("key-{key}")) {
        let bodies = handled.iter().filter(|(of, _)| *of == key).map(|(_, body)| body.parse().unwrap());
        assert_eq!(bodies.collect::<Vec<usize>>(), (0..MESSAGES / 30).collect::<Vec<_>>(), "{key}");
    }
    effects.end().await;
}

/// What was handled and not committed comes again, or is committed by a thread that goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_while_the_broker_is_away_ends_in_its_time() {
    let _alone = BROKER.write().await;
    let (topic, group) = (broker::topic().await, broker::unused_name());
    let message = |number: usize| (format!("key-{number}"), format!("event-{number}"), number.to_string());
    broker::send(&topic, (0..20).map(message)).await;
    let (handler, mut seen) = Told::new(async |_| Ok(()));
    let running = Consumer::builder(config(&group)).topic(topic.as_str(), handler).start().unwrap();
    take(&mut seen, 20).await;
    let away = Away::kill().await;
    let stopped = timeout(Duration::from_secs(60), running.shutdown()).await;
    away.end().await;
    assert!(stopped.expect("the shutdown waits for the broker").graceful);
    let (handler, _seen) = Told::new(async |_| Ok(()));
    let running = Consumer::builder(config(&group)).topic(topic.as_str(), handler).start().unwrap();
    bounded(broker::until_committed(&topic, &group, 20)).await;
    assert!(running.shutdown().await.graceful);
}
