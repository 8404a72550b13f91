//! A connection of the user's pool for one call.

use sqlx::pool::PoolConnection;
use sqlx_core::transaction::TransactionManager;

use crate::database::LockDatabase;

/// Unless it is given back, dropping it takes the connection out of the pool and closes it: a call that was cut
/// off may have left a statement or a transaction open there.
pub(crate) struct Lent<DB: LockDatabase> {
    conn: Option<PoolConnection<DB>>,
    /// Whether all that is done with it is one transaction.
    is_transaction: bool,
}

impl<DB: LockDatabase> Lent<DB> {
    /// For statements that `named` says whether they have names on the server. A statement without a name is
    /// prepared and run by two messages, which a pooler keeps on one connection of the server within a
    /// transaction only.
    pub(crate) async fn from(pool: &sqlx::Pool<DB>, named: bool) -> Result<Self, sqlx::Error> {
        let mut lent = Self { conn: Some(pool.acquire().await?), is_transaction: !named };
        if lent.is_transaction {
            DB::TransactionManager::begin(lent.conn(), None).await?;
        }
        Ok(lent)
    }

    #[expect(clippy::expect_used, reason = "the connection is there until `give_back` takes the guard")]
    pub(crate) fn conn(&mut self) -> &mut DB::Connection {
        self.conn.as_mut().expect("lent connection")
    }

    pub(crate) async fn give_back(mut self) -> Result<(), sqlx::Error> {
        if self.is_transaction {
            DB::TransactionManager::commit(self.conn()).await?;
        }
        drop(self.conn.take());
        Ok(())
    }
}

impl<DB: LockDatabase> Drop for Lent<DB> {
    fn drop(&mut self) {
        drop(self.conn.take().map(PoolConnection::detach));
    }
}
