//! The calls of the database. Each uses a connection of the pool and has a time limit.

use std::{sync::Arc, time::Duration};

use keylane_sql::{Kind, Lent, Row, Schema, Value};
use tokio::time::{sleep, timeout};

use crate::{
    database::LockDatabase,
    error::LockError,
    renewal::Tickets,
    rules::{self, Ahead},
    signals::Waiters,
    statements::Statements,
    ticket::{self, NewTicket},
};

/// Tries of a statement that the database refuses for the moment.
const TRIES: u32 = 10;

/// What all clones of a client share.
pub(crate) struct Shared<DB: LockDatabase> {
    pub(crate) pool: sqlx::Pool<DB>,
    pub(crate) sql: Statements,
    pub(crate) schema: Schema,
    /// Distinguishes the tickets of this client from those of others.
    pub(crate) client: String,
    /// The text of the column `owner` for requests without an owner.
    pub(crate) name: String,
    pub(crate) lease: Duration,
    /// Whether statements may have names on the server.
    pub(crate) named: bool,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) wake: DB::Wake,
    pub(crate) tickets: Tickets,
}

/// A number in 0..1.
pub(crate) fn chance() -> f64 {
    f64::from(uuid::Uuid::now_v7().as_bytes()[15]) / 256.0
}

/// The tickets of an answer to `read_queue`.
pub(crate) fn tickets(rows: Vec<Row>) -> Vec<Ahead> {
    let ticket = |mut row: Row| {
        let (ticket, client) = (row.take_text(1), row.take_text(2));
        Some(Ahead { token: row.int(0)?, ticket, client, left: row.millis(3) })
    };
    rows.into_iter().filter_map(ticket).collect()
}

pub(crate) const READ_QUEUE: &[Kind] = &[Kind::Int, Kind::Text, Kind::Text, Kind::Int];

impl<DB: LockDatabase> Shared<DB> {
    pub(crate) async fn queue(&self, new: &NewTicket) -> Result<i64, LockError> {
        let queued = async {
            let mut lent = Lent::<DB>::from(&self.pool, self.named).await?;
            let token = ticket::queue::<DB>(lent.conn(), &self.sql, new, self.named).await?;
            lent.commit().await?;
            Ok(token)
        };
        self.limited("queue", queued).await
    }

    /// The two highest tickets of a resource up to a token.
    pub(crate) async fn read_queue(&self, resource: &str, token: i64) -> Result<Vec<Ahead>, LockError> {
        let values = vec![Value::Exact(resource.to_owned()), Value::Int(token)];
        Ok(tickets(self.rows("read queue", &self.sql.read_queue, values, READ_QUEUE).await?))
    }

    /// The token of a ticket, if it is in its queue.
    pub(crate) async fn find(&self, ticket: &str) -> Result<Option<i64>, LockError> {
        let values = vec![Value::Text(ticket.to_owned())];
        let rows = self.rows("find", &self.sql.find, values, &[Kind::Int]).await?;
        Ok(rows.first().and_then(|row| row.int(0)))
    }

    /// Deletes a ticket that has expired, unless it was renewed meanwhile.
    pub(crate) async fn evict(&self, resource: &str, ahead: &Ahead) -> Result<(), LockError> {
        let values = vec![Value::Exact(resource.to_owned()), Value::Int(ahead.token)];
        self.run("evict", &self.sql.evict, values).await.map(drop)
    }

    pub(crate) async fn run(
        &self,
        call: &'static str,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<u64, LockError> {
        let done = async {
            let mut lent = Lent::<DB>::from(&self.pool, self.named).await?;
            let done = DB::execute(lent.conn(), sql, values, self.named).await?;
            lent.commit().await?;
            Ok(done.rows)
        };
        self.limited(call, done).await
    }

    pub(crate) async fn rows(
        &self,
        call: &'static str,
        sql: &str,
        values: Vec<Value>,
        kinds: &'static [Kind],
    ) -> Result<Vec<Row>, LockError> {
        let read = async {
            let mut lent = Lent::<DB>::from(&self.pool, self.named).await?;
            let rows = DB::query(lent.conn(), sql, values, kinds, self.named).await?;
            lent.commit().await?;
            Ok(rows)
        };
        self.limited(call, read).await
    }

    /// Limits a call to the length of a lease, because a later answer is useless.
    pub(crate) async fn limited<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, LockError> {
        let limit = self.lease;
        let done = timeout(limit, work).await.map_err(|_| LockError::NoAnswer { call, limit })?;
        done.map_err(LockError::of::<DB>(call))
    }
}

/// Repeats a call while a repetition may succeed.
pub(crate) async fn again<T, F>(mut call: impl FnMut() -> F) -> Result<T, LockError>
where
    F: Future<Output = Result<T, LockError>>,
{
    let mut failed = 0;
    loop {
        match call().await {
            Err(error) if error.is_retryable() && failed < TRIES => {
                failed += 1;
                sleep(rules::backoff(failed, chance())).await;
            }
            done => return done,
        }
    }
}
