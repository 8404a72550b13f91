//! Consumers under test, and what their handlers have seen.

use std::{env, future::Future, process::Stdio, time::Duration};

use keylane::{HandlerError, RetryPolicy};
use keylane_consumer::{ConsumerConfig, Message, MessageHandler, TransactionalMessageHandler};
use keylane_inbox::Inbox;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row, postgres::PgPoolOptions};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::broker;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(180);
/// Tells a process of this test binary what it is to do.
const WORKER: &str = "KEYLANE_CONSUMER_TEST_WORKER";

pub(crate) async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("nothing has come for three minutes")
}

pub(crate) fn config(group: &str) -> ConsumerConfig {
    config_at(broker::address(), group)
}

pub(crate) fn config_at(address: String, group: &str) -> ConsumerConfig {
    ConsumerConfig::new(address, group)
        .retry(RetryPolicy::fixed(Duration::from_millis(20)).jitter(0.0).max_retries(2))
        // Groups of the tests need not wait for members that may come.
        .property("heartbeat.interval.ms", "500")
}

/// What a handler has seen: key and body.
pub(crate) type Seen = (String, String);

pub(crate) fn seen_of(message: &Message) -> Seen {
    let body = String::from_utf8(message.payload().to_vec()).unwrap();
    (message.key().unwrap_or_default().to_owned(), body)
}

/// A handler that is a closure, and tells when it has ended well.
pub(crate) struct Told<F> {
    sender: UnboundedSender<Seen>,
    work: F,
}

impl<F> Told<F> {
    pub(crate) fn new(work: F) -> (Self, UnboundedReceiver<Seen>) {
        let (sender, seen) = unbounded_channel();
        (Self { sender, work }, seen)
    }
}

impl<F, W> MessageHandler for Told<F>
where
    F: Fn(Seen) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let seen = seen_of(message);
        (self.work)(seen.clone()).await?;
        let _ = self.sender.send(seen);
        Ok(())
    }
}

/// So many of them.
pub(crate) async fn take(seen: &mut UnboundedReceiver<Seen>, count: usize) -> Vec<Seen> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        taken.push(bounded(seen.recv()).await.expect("the consumer is gone"));
    }
    taken
}

/// A process of this test binary that runs one of its tests, and is killed.
pub(crate) struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Worker {
    pub(crate) fn start(test: &str, told: &[&str]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(WORKER, told.join(" "))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, lines }
    }

    /// What this process is told; nothing in a run of the tests.
    pub(crate) fn told<const N: usize>() -> Option<[String; N]> {
        let told: Vec<String> = env::var(WORKER).ok()?.split(' ').map(str::to_owned).collect();
        Some(told.try_into().unwrap())
    }

    /// Waits for this line.
    pub(crate) async fn says(&mut self, line: &str) {
        while bounded(self.lines.next_line()).await.unwrap().expect("the worker goes on") != line {}
    }

    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

/// An inbox and effects in PostgreSQL.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) inbox: Inbox<Postgres>,
    pub(crate) prefix: String,
}

impl Effects {
    pub(crate) async fn new() -> Self {
        let prefix =
            format!("tc{}_", broker::unused_name().replace("keylane-consumer-", "").replace('-', "_"));
        let effects = Self::at(&prefix).await;
        effects.inbox.migrate().await.unwrap();
        effects.execute("CREATE TABLE {}effect (event_id text NOT NULL, key text NOT NULL)").await;
        effects
    }

    pub(crate) async fn at(prefix: &str) -> Self {
        let url = std::env::var("KEYLANE_TEST_POSTGRES_URL").expect("KEYLANE_TEST_POSTGRES_URL is not set");
        let pool: PgPool = PgPoolOptions::new().max_connections(8).connect(&url).await.unwrap();
        let inbox = Inbox::builder(pool).table_prefix(prefix).build().unwrap();
        Self { inbox, prefix: prefix.to_owned() }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.replace("{}", &self.prefix));
        sqlx::raw_sql(sql).execute(self.inbox.pool()).await.unwrap();
    }

    /// Event ids with the number of their effects, as soon as no transaction that has effects is open. A killed process
    /// may have sent a commit that the server has not carried out.
    pub(crate) async fn counts(&self) -> Vec<(String, i64)> {
        self.execute("BEGIN; LOCK TABLE {}effect IN SHARE MODE; COMMIT").await;
        let sql = format!(
            "SELECT event_id, count(*) FROM {}effect GROUP BY event_id ORDER BY event_id",
            self.prefix
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(self.inbox.pool()).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub(crate) async fn affect(&self, tx: &mut PgConnection, message: &Message) -> Result<(), sqlx::Error> {
        let sql = format!("INSERT INTO {}effect VALUES ($1, $2)", self.prefix);
        let query = sqlx::query(AssertSqlSafe(sql)).bind(message.event_id()).bind(message.key());
        query.execute(tx).await.map(drop)
    }

    pub(crate) async fn end(self) {
        self.execute("DROP TABLE {}effect; DROP TABLE {}message; DROP TABLE {}meta").await;
        self.inbox.pool().close().await;
    }
}

/// Has its effect in the transaction; poison fails after its effect.
pub(crate) struct Affect {
    pub(crate) effects: Effects,
    pub(crate) called: UnboundedSender<Seen>,
}

impl TransactionalMessageHandler<Postgres> for Affect {
    async fn handle(&self, tx: &mut PgConnection, message: &Message) -> Result<(), HandlerError> {
        let seen = seen_of(message);
        self.effects.affect(tx, message).await?;
        if seen.1 == "poison" {
            return Err(HandlerError::new("no such account").class("account"));
        }
        let _ = self.called.send(seen);
        Ok(())
    }
}
