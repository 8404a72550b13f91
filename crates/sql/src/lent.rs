//! A connection of the user's pool for one call.

use sqlx::{Pool, SqlSafeStr, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;

use crate::database::SqlDatabase;

/// A connection that is lent from a pool, with or without a transaction.
///
/// [`commit`](Self::commit) and [`roll_back`](Self::roll_back) return it. If it is dropped instead, the connection is
/// taken out of the pool and closed, because a call that was cut off may have left a transaction open.
pub struct Lent<DB: SqlDatabase> {
    conn: Option<PoolConnection<DB>>,
    /// Whether all statements on the connection are one transaction.
    is_transaction: bool,
}

impl<DB: SqlDatabase> Lent<DB> {
    /// A connection for statements. `named` says whether they have names on the server. A statement without a name is
    /// prepared and run by two messages, which a pooler keeps on one connection of the server within a transaction
    /// only.
    ///
    /// # Errors
    /// The database's.
    pub async fn from(pool: &Pool<DB>, named: bool) -> Result<Self, sqlx::Error> {
        let mut lent = Self { conn: Some(pool.acquire().await?), is_transaction: !named };
        if lent.is_transaction {
            DB::TransactionManager::begin(lent.conn(), None).await?;
        }
        Ok(lent)
    }

    /// Opens a transaction by this statement.
    ///
    /// # Errors
    /// The database's.
    pub async fn begin(pool: &Pool<DB>, statement: &'static str) -> Result<Self, sqlx::Error> {
        let mut lent = Self { conn: Some(pool.acquire().await?), is_transaction: true };
        DB::TransactionManager::begin(lent.conn(), Some(statement.into_sql_str())).await?;
        Ok(lent)
    }

    /// The connection.
    #[expect(clippy::expect_used, reason = "the connection is there until the guard is taken or dropped")]
    pub fn conn(&mut self) -> &mut DB::Connection {
        self.conn.as_mut().expect("lent connection")
    }

    /// How many transactions are open, one within another, as far as sqlx knows.
    pub fn depth(&mut self) -> usize {
        DB::TransactionManager::get_transaction_depth(self.conn())
    }

    /// Commits the transaction, if there is one, and returns the connection to the pool.
    ///
    /// # Errors
    /// The database's. The transaction may have been committed or not.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        if self.is_transaction {
            DB::TransactionManager::commit(self.conn()).await?;
        }
        drop(self.conn.take());
        Ok(())
    }

    /// Rolls back. If the rollback has certainly left the connection clean, it returns to the pool.
    pub async fn roll_back(mut self) {
        if self.depth() == 1 && DB::TransactionManager::rollback(self.conn()).await.is_ok() {
            drop(self.conn.take());
        }
    }
}

impl<DB: SqlDatabase> Drop for Lent<DB> {
    fn drop(&mut self) {
        drop(self.conn.take().map(PoolConnection::detach));
    }
}
