//! Orders and their events in one transaction each, relayed to Kafka: every key in order, and nothing of what was
//! rolled back.
//!
//! `cargo run --package keylane-kafka --example kafka_relay`, with the URL of a PostgreSQL in
//! `KEYLANE_TEST_POSTGRES_URL` and the address of a Kafka in `KEYLANE_TEST_KAFKA`.

#![allow(clippy::print_stdout, missing_docs)]

use std::{collections::BTreeMap, error::Error, str::FromStr, time::Duration};

use keylane::{
    Outbox, OutboxEvent,
    sqlx::{self, AssertSqlSafe, PgPool, postgres::PgConnectOptions},
};
use keylane_kafka::{KafkaConfig, KafkaSink, route};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
};
use serde::{Deserialize, Serialize};

const PARTITIONS: i32 = 3;
const ORDERS: [&str; 3] = ["order-1", "order-2", "order-3"];
const STEPS: [&str; 3] = ["placed", "paid", "shipped"];

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.changed", key = "{order}")]
struct OrderChanged {
    order: String,
    state: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = std::env::var("KEYLANE_TEST_KAFKA").unwrap_or_else(|_| "127.0.0.1:9092".to_owned());
    let run = format!("example_kafka_relay_{}", std::time::UNIX_EPOCH.elapsed()?.as_millis());
    let options = PgConnectOptions::from_str(&std::env::var("KEYLANE_TEST_POSTGRES_URL")?)?;
    let pool = PgPool::connect_with(options.options([("search_path", &run)])).await?;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &brokers).create()?;
    let topic = NewTopic::new(&run, PARTITIONS, TopicReplication::Fixed(1));
    for made in admin.create_topics([&topic], &AdminOptions::new()).await? {
        made.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {run}"))).execute(&pool).await?;
    let shown = show(&pool, &brokers, &run).await;
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {run} CASCADE"))).execute(&pool).await?;
    admin.delete_topics(&[&run], &AdminOptions::new()).await?;
    shown
}

async fn show(pool: &PgPool, brokers: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let kafka = KafkaSink::new(KafkaConfig::new(brokers).source("/shop"))?;
    let kafka = route(kafka).events(["order.*"]).to(topic).header("team", "sales").registration("kafka");
    let outbox = Outbox::builder(pool.clone()).handler(kafka).build().await?;
    outbox.migrate().await?;
    sqlx::query("CREATE TABLE customer_order (name text PRIMARY KEY, state text NOT NULL)")
        .execute(pool)
        .await?;
    let running = outbox.start().await?;
    for state in STEPS {
        for order in ORDERS {
            let event = OrderChanged { order: order.to_owned(), state: state.to_owned() };
            let mut tx = pool.begin().await?;
            sqlx::query(
                "INSERT INTO customer_order VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET state = $2",
            )
            .bind(order)
            .bind(state)
            .execute(&mut *tx)
            .await?;
            outbox.schedule(&mut tx, &event).await?;
            // The third order is paid by nobody.
            if (order, state) == ("order-3", "paid") {
                tx.rollback().await?;
            } else {
                tx.commit().await?;
            }
        }
    }
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    // The client waits on a thread of its own.
    let arrived = tokio::task::spawn_blocking(move || read(&brokers, &topic, 8)).await?;
    running.shutdown().await;
    for (order, states) in arrived.map_err(|error| error.to_string())? {
        println!("{order}: {}", states.join(", "));
    }
    Ok(())
}

/// What so many messages say of each key, in the order of the topic.
fn read(
    brokers: &str,
    topic: &str,
    count: usize,
) -> Result<BTreeMap<String, Vec<String>>, Box<dyn Error + Send + Sync>> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers).set("group.id", topic).set("enable.auto.commit", "false");
    let consumer: BaseConsumer = client.create()?;
    let mut places = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        places.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&places)?;
    let mut arrived = BTreeMap::<_, Vec<_>>::new();
    for _ in 0..count {
        let message = consumer.poll(Duration::from_secs(30)).ok_or("a message is missing")??;
        let event: OrderChanged = serde_json::from_slice(message.payload().unwrap_or_default())?;
        let of_type = message.headers().is_some_and(|headers| {
            headers.iter().any(|header| (header.key, header.value) == ("ce_type", Some(b"order.changed")))
        });
        if !of_type || message.key() != Some(event.order.as_bytes()) {
            return Err("a message has not the type and the key of its event".into());
        }
        arrived.entry(event.order).or_default().push(event.state);
    }
    Ok(arrived)
}
