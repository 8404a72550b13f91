//! Each message three times, one of them poison: each effect once, and the poison among the dead letters.
//!
//! `cargo run --package keylane-consumer --example inbox_consumer`, with the URL of a PostgreSQL in
//! `KEYLANE_TEST_POSTGRES_URL` and the address of a Kafka in `KEYLANE_TEST_KAFKA`.

#![allow(clippy::print_stdout, missing_docs)]

use std::{error::Error, time::Duration};

use keylane::{HandlerError, RetryPolicy};
use keylane_consumer::{Consumer, ConsumerConfig, Message, TransactionalMessageHandler};
use keylane_inbox::Inbox;
use keylane_kafka::{Event, KafkaConfig, KafkaProducer};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use serde::Deserialize;
use sqlx::{PgConnection, PgPool, Postgres, Row};

/// The event id, the key, and what is to be booked. Nobody has the account of the third one.
const PAYMENTS: [(&str, &str, &str); 4] = [
    ("payment-1", "ann", r#"{"account":"ann","amount":20}"#),
    ("payment-2", "bob", r#"{"account":"bob","amount":7}"#),
    ("payment-3", "ann", r#"{"account":"nobody","amount":1000}"#),
    ("payment-4", "ann", r#"{"account":"ann","amount":22}"#),
];

#[derive(Deserialize)]
struct Payment {
    account: String,
    amount: i64,
}

/// Books payments. The handler only writes: that it does so once is the inbox's work.
struct Book;

impl TransactionalMessageHandler<Postgres> for Book {
    async fn handle(&self, tx: &mut PgConnection, message: &Message) -> Result<(), HandlerError> {
        let payment: Payment = message.json()?;
        let booked = sqlx::query("UPDATE inbox_example_account SET balance = balance + $1 WHERE name = $2")
            .bind(payment.amount)
            .bind(&payment.account)
            .execute(tx)
            .await?;
        if booked.rows_affected() == 0 {
            return Err(HandlerError::new("no such account"));
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = std::env::var("KEYLANE_TEST_KAFKA").unwrap_or_else(|_| "127.0.0.1:9092".to_owned());
    let pool = PgPool::connect(&std::env::var("KEYLANE_TEST_POSTGRES_URL")?).await?;
    let tables = "DROP TABLE IF EXISTS inbox_example_account, inbox_example_message, inbox_example_meta";
    sqlx::raw_sql(tables).execute(&pool).await?;
    let accounts = "CREATE TABLE inbox_example_account (name text PRIMARY KEY, balance bigint NOT NULL); \
                    INSERT INTO inbox_example_account VALUES ('ann', 0), ('bob', 0)";
    sqlx::raw_sql(accounts).execute(&pool).await?;
    let inbox = Inbox::builder(pool.clone()).table_prefix("inbox_example_").build()?;
    inbox.migrate().await?;
    let (payments, dead) = topics(&brokers).await?;
    send(&brokers, &payments).await?;

    let config = ConsumerConfig::new(&brokers, &payments)
        .retry(RetryPolicy::fixed(Duration::from_millis(50)).max_retries(2))
        .batch_size(10);
    let running = Consumer::builder(config)
        .transactional(&payments, inbox.clone(), Book)
        .dead_letters(&dead)
        .start()?;
    // Ann's last payment comes behind a payment that nobody can book. Bob's is in a partition of its own, and may
    // come later than all of hers.
    let booked = "SELECT sum(balance)::bigint FROM inbox_example_account";
    while sqlx::query(booked).fetch_one(&pool).await?.get::<i64, _>(0) < 20 + 7 + 22 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.shutdown().await;
    println!("{} messages came", 3 * PAYMENTS.len());

    for row in
        sqlx::query("SELECT name, balance FROM inbox_example_account ORDER BY 1").fetch_all(&pool).await?
    {
        println!("{} has {}", row.get::<String, _>(0), row.get::<i64, _>(1));
    }
    let messages = "SELECT event_id, status, attempts, error FROM inbox_example_message ORDER BY 1";
    for row in sqlx::query(messages).fetch_all(&pool).await? {
        let (id, status): (String, String) = (row.get(0), row.get(1));
        let error: Option<String> = row.get(3);
        println!("{id}: {status}{}", error.map(|error| format!(", {error}")).unwrap_or_default());
    }
    sqlx::raw_sql(tables).execute(&pool).await?;
    Ok(())
}

/// Each payment three times, as a broker may deliver it.
async fn send(brokers: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let producer = KafkaProducer::new(KafkaConfig::new(brokers).source("/bank"))?;
    for (id, key, payload) in PAYMENTS {
        let event = Event::new(id, "payment.made", key, payload.as_bytes());
        for _ in 0..3 {
            producer.send(topic, &event).await?;
        }
    }
    Ok(())
}

/// New topics: of payments, and of dead letters.
async fn topics(brokers: &str) -> Result<(String, String), Box<dyn Error>> {
    let run = std::time::UNIX_EPOCH.elapsed()?.as_millis();
    let (payments, dead) = (format!("payments-{run}"), format!("payments-{run}.dead"));
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let new = [&payments, &dead].map(|name| NewTopic::new(name, 3, TopicReplication::Fixed(1)));
    for made in admin.create_topics(&new, &AdminOptions::new()).await? {
        made.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    Ok((payments, dead))
}
