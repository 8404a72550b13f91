//! `bench inbox --kafka`: the messages come out of a topic, by the consumer of the library or by loops written by hand.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::Args;
use keylane::sqlx::{self, PgConnection, PgPool, Postgres};
use keylane_consumer::{ConsumerConfig, HandlerError, Message, TransactionalMessageHandler};
use keylane_inbox::Inbox;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
    message::{BorrowedMessage, Headers, Message as _},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{EFFECT, Options, Result, Subject, one_by_hand};
use crate::{
    kafka::{raw, topic::Topic},
    meter::{Cost, Meter},
    options::Load,
};

/// The bench fails if the messages take longer.
const STALL: Duration = Duration::from_secs(300);
/// How often the bench looks whether all messages were handled.
const LOOK: Duration = Duration::from_millis(2);
const NOTED: &str = "SELECT count(*) FROM keylane_bench_inbox_message WHERE status = 'SUCCESS'";

/// Where the messages come from.
#[derive(Clone, Debug, Args)]
pub(super) struct Source {
    /// The messages come out of Kafka.
    #[arg(long)]
    pub(super) kafka: bool,
    /// The first brokers, as host:port,host:port.
    #[arg(long, env = "KEYLANE_BENCH_KAFKA", default_value = "127.0.0.1:9092")]
    brokers: String,
}

/// Holds the first messages until the clocks were read: joining a group takes seconds, and says nothing.
struct Gate {
    come: AtomicUsize,
    open: Semaphore,
    handled: AtomicUsize,
}

/// Consumes a topic that is full of new messages, from the first one to the note of the last one.
pub(super) async fn consume(
    options: &Options,
    inbox: &Inbox<Postgres>,
    meter: &Meter<Postgres>,
    subject: Subject,
) -> Result<Cost> {
    let (messages, connections) = (options.messages.get(), options.connections.get());
    // Each loop by hand has two partitions, so that all have the same work.
    let topic = Topic::make(&options.source.brokers, i32::try_from(2 * connections)?).await?;
    let keys = NonZeroUsize::new(10_000).ok_or("no keys")?;
    raw::send(&topic, messages, Load { keys, payload_bytes: 200 }).await?;
    let gate =
        Arc::new(Gate { come: AtomicUsize::new(0), open: Semaphore::new(0), handled: AtomicUsize::new(0) });
    let passed = gate.passed(messages, inbox.pool(), meter);
    let cost = match subject {
        Subject::Hand => {
            let mut loops = JoinSet::new();
            for number in 0..connections {
                let consumer = by_hand(&topic, [number, number + connections])?;
                loops.spawn(consume_by_hand(consumer, inbox.pool().clone(), Arc::clone(&gate)));
            }
            tokio::select! {
                cost = passed => cost?,
                Some(ended) = loops.join_next() => return Err(ended?.err().unwrap_or("a loop has ended".into())),
            }
        }
        Subject::Single | Subject::Batch => {
            let batch = if subject == Subject::Batch { options.batch.get() } else { 1 };
            let config = ConsumerConfig::new(&options.source.brokers, topic.name());
            let config = config.concurrency(connections).batch_size(batch);
            let consumer = keylane_consumer::Consumer::builder(config);
            let handler = Effect(Arc::clone(&gate));
            let running = consumer.transactional(topic.name(), inbox.clone(), handler).start()?;
            let cost = passed.await?;
            running.shutdown().await;
            cost
        }
    };
    topic.remove().await?;
    Ok(cost)
}

impl Gate {
    async fn pass(&self) {
        self.come.fetch_add(1, Relaxed);
        // It is closed for good once the clocks were read.
        let _ = self.open.acquire().await;
    }

    /// What it costs to let all messages pass.
    async fn passed(&self, messages: usize, pool: &PgPool, meter: &Meter<Postgres>) -> Result<Cost> {
        let reached = async |count: &AtomicUsize, wanted: usize| {
            let since = Instant::now();
            while count.load(Relaxed) < wanted {
                if since.elapsed() > STALL {
                    return Err(format!("{} of {wanted} messages after {STALL:?}", count.load(Relaxed)));
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        reached(&self.come, 1).await?;
        let start = meter.start().await?;
        self.open.close();
        reached(&self.handled, messages).await?;
        // The last transactions may not have ended.
        while sqlx::query_scalar::<_, i64>(NOTED).fetch_one(pool).await? < i64::try_from(messages)? {
            tokio::time::sleep(LOOK).await;
        }
        meter.stop(start).await
    }
}

/// The handler of the consumer.
struct Effect(Arc<Gate>);

impl TransactionalMessageHandler<Postgres> for Effect {
    async fn handle(
        &self,
        tx: &mut PgConnection,
        message: &Message,
    ) -> std::result::Result<(), HandlerError> {
        self.0.pass().await;
        sqlx::query(EFFECT).bind(message.event_id()).execute(tx).await?;
        self.0.handled.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// A consumer of these partitions, as an expert sets it up: it commits each second what was handled.
fn by_hand(topic: &Topic, partitions: [usize; 2]) -> Result<StreamConsumer> {
    let mut client = topic.client();
    client.set("group.id", topic.name()).set("auto.commit.interval.ms", "1000");
    client.set("enable.auto.offset.store", "false");
    let consumer: StreamConsumer = client.create()?;
    let mut places = TopicPartitionList::new();
    for partition in partitions {
        places.add_partition_offset(topic.name(), i32::try_from(partition)?, Offset::Beginning)?;
    }
    consumer.assign(&places)?;
    Ok(consumer)
}

async fn consume_by_hand(consumer: StreamConsumer, pool: PgPool, gate: Arc<Gate>) -> Result<()> {
    loop {
        let message = consumer.recv().await?;
        let id = event_id(&message).ok_or("a message has no ce_id")?;
        gate.pass().await;
        one_by_hand(&pool, id).await?;
        consumer.store_offset_from_message(&message)?;
        gate.handled.fetch_add(1, Relaxed);
    }
}

fn event_id<'a>(message: &'a BorrowedMessage<'_>) -> Option<&'a str> {
    let id = message.headers()?.iter().find(|header| header.key == "ce_id")?;
    std::str::from_utf8(id.value?).ok()
}
