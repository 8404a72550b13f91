//! Messages whose effect is outside the database: they are claimed while they are handled.

use std::time::Duration;

use keylane::HandlerError;
use keylane_consumer::{Consumer, ConsumerBuilder, Message, MessageHandler};
use keylane_inbox::Inbox;
use sqlx::{AssertSqlSafe, Row};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{
    away::BROKER,
    broker,
    stage::{Effects, Seen, Worker, config, seen_of, take},
};

/// Longer than all attempts of a message last.
const LEASE: Duration = Duration::from_secs(5);

/// A member that claims. One that comes back under its name gets the partitions of the old one at once.
fn member(topic: &str, group: &str, effects: &Effects, handler: impl MessageHandler) -> ConsumerBuilder {
    let inbox = Inbox::builder(effects.inbox.pool().clone()).table_prefix(&*effects.prefix);
    let config = config(group).property("group.instance.id", "one");
    Consumer::builder(config).claimed(topic, inbox.lease(LEASE).build().unwrap(), handler)
}

/// Says that it has a message, and goes no further.
struct Hold;

impl MessageHandler for Hold {
    async fn handle(&self, _: &Message) -> Result<(), HandlerError> {
        eprintln!("claimed");
        std::future::pending().await
    }
}

/// Has its effect on a connection of its own. The effect says whether the lease of another had ended by then.
struct Elsewhere {
    effects: Effects,
    lease_until: String,
    called: UnboundedSender<Seen>,
}

impl MessageHandler for Elsewhere {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let sql = format!(
            "INSERT INTO {}effect SELECT $1, CASE WHEN clock_timestamp() < $2::timestamptz THEN 'early' \
             ELSE 'after' END",
            self.effects.prefix
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(message.event_id()).bind(&self.lease_until);
        query.execute(self.effects.inbox.pool()).await?;
        let _ = self.called.send(seen_of(message));
        Ok(())
    }
}

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Some([topic, group, prefix]) = Worker::told() else { return };
    let _running = member(&topic, &group, &Effects::at(&prefix).await, Hold).start().unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_member_has_claimed_is_handled_by_the_next_after_the_lease() {
    let _shared = BROKER.read().await;
    let (topic, dead) = (broker::topic_of(1).await, broker::topic_of(1).await);
    let (effects, group) = (Effects::new().await, broker::unused_name());
    let messages = ["first", "second"].map(|body| ("key".to_owned(), body.to_owned(), body.to_owned()));
    broker::send(&topic, messages).await;
    let mut worker = Worker::start("claimed::worker", &[&topic, &group, &effects.prefix]);
    worker.says("claimed").await;
    worker.kill().await;

    let row = format!("SELECT lease_until::text FROM {}message WHERE status = 'PROCESSING'", effects.prefix);
    let row = sqlx::query(AssertSqlSafe(row)).fetch_one(effects.inbox.pool()).await.unwrap();
    let (called, mut seen) = unbounded_channel();
    let handler = Elsewhere { effects: effects.clone(), lease_until: row.get(0), called };
    let next = member(&topic, &group, &effects, handler).dead_letters(dead.as_str()).start().unwrap();
    let bodies: Vec<String> = take(&mut seen, 2).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["first", "second"]);
    assert!(next.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 2);
    assert!(seen.try_recv().is_err(), "a message was handled twice");

    let sql = format!(
        "SELECT count(*) FILTER (WHERE key = 'after'), count(*), (SELECT sum(attempts) FROM {0}message \
         WHERE status = 'SUCCESS') FROM {0}effect",
        effects.prefix
    );
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(effects.inbox.pool()).await.unwrap();
    // The first message was taken by two members, and the second one by the next alone.
    assert_eq!((row.get(0), row.get(1), row.get(2)), (2_i64, 2_i64, 3_i64));
    // While the lease lasted, the message was refused more often than it has attempts. None of it counted.
    assert!(broker::read(&dead).await.is_empty());
    effects.end().await;
}
