//! A lock that lasts until the caller's own transaction ends.

use keylane_sql::{Kind, Value};
use sqlx::Connection;
use tokio::time::{Instant, timeout_at};

use crate::{
    client::LockClient,
    database::LockDatabase,
    error::LockError,
    request::{LONGEST_RESOURCE, check},
    rules::{Standing, standing_without_ticket},
    shared::{READ_QUEUE, tickets},
    templates::{Templates, Waits},
    ticket,
};

impl<DB: LockDatabase> LockClient<DB> {
    /// Locks a resource until the end of the caller's transaction, which sqlx has begun. Returns the fencing token.
    /// There is no lease and nothing to release: a commit, a rollback and the end of the connection all free the
    /// lock.
    ///
    /// Later requests wait in the database behind the row of the resource, each with a connection. Keep the
    /// transaction short. A rollback gives the token back to the next holder.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn run(locks: keylane_lock::LockClient<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = locks.pool().begin().await?;
    /// locks.lock_in(&mut tx, "account-7").await?;
    /// sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 7").execute(&mut *tx).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Roll the transaction back after any of them. [`LockError::NoTransaction`]; [`LockError::TimedOut`] if earlier
    /// requests hold the lock for longer than the timeout of the client; [`LockError::Held`] on SQLite, and on
    /// PostgreSQL under REPEATABLE READ and SERIALIZABLE; [`LockError::Database`], such as a conflict under these, or
    /// a row that stayed locked for too long.
    ///
    /// # Cancel safety
    /// If the call is dropped, roll the transaction back.
    pub async fn lock_in(&self, conn: &mut DB::Connection, resource: &str) -> Result<i64, LockError> {
        check("resource", resource, LONGEST_RESOURCE)?;
        if !conn.is_in_transaction() {
            return Err(LockError::NoTransaction);
        }
        let shared = &self.shared;
        let token = ticket::draw::<DB>(conn, &shared.sql, resource, shared.named).await;
        let token = token.map_err(LockError::of::<DB>("draw"))?;
        if !self.can_wait(conn).await? {
            return self.first_or_held(conn, resource, token).await;
        }
        let waiter = shared.waiters.open();
        let waited = shared.wait(resource, token, &waiter, standing_without_ticket);
        match timeout_at(Instant::now() + self.timeout, waited).await {
            Ok(waited) => waited.map(|_| token),
            Err(_) => Err(LockError::TimedOut { resource: resource.to_owned(), waited: self.timeout }),
        }
    }

    async fn can_wait(&self, conn: &mut DB::Connection) -> Result<bool, LockError> {
        let sql = match Templates::of::<DB>().waits {
            Waits::Always => return Ok(true),
            Waits::Never => return Ok(false),
            Waits::If(sql) => sql,
        };
        let rows = DB::query(conn, sql, Vec::new(), &[Kind::Int], self.shared.named).await;
        Ok(rows.map_err(LockError::of::<DB>("isolation"))?.iter().any(|row| row.int(0) == Some(1)))
    }

    /// Reads the queue with the snapshot of the transaction: if no holder is in it, nobody has written under the lock
    /// since it was taken.
    async fn first_or_held(
        &self,
        conn: &mut DB::Connection,
        resource: &str,
        token: i64,
    ) -> Result<i64, LockError> {
        let sql = &self.shared.sql;
        let key = Value::Exact(resource.to_owned());
        loop {
            let values = vec![key.clone(), Value::Int(token)];
            let highest = DB::query(conn, &sql.read_queue, values, READ_QUEUE, self.shared.named).await;
            let highest = tickets(highest.map_err(LockError::of::<DB>("read queue"))?);
            let ahead = match standing_without_ticket(highest) {
                Standing::Behind(ahead) if ahead.left.is_zero() => ahead,
                Standing::Behind(_) => return Err(LockError::Held { resource: resource.to_owned() }),
                Standing::First | Standing::Gone => return Ok(token),
            };
            let values = vec![key.clone(), Value::Int(ahead.token)];
            let evicted = DB::execute(conn, &sql.evict, values, self.shared.named).await;
            evicted.map_err(LockError::of::<DB>("evict"))?;
        }
    }
}
