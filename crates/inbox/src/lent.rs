//! A connection of the user's pool with a transaction of the inbox on it.

use sqlx::pool::PoolConnection;
use sqlx_core::transaction::TransactionManager;

use crate::{core::Shared, database::InboxDatabase, error::InboxError};

/// Unless it is kept, dropping it takes the connection out of the pool and closes it, and with it the transaction:
/// work that was cut off may have left anything open there.
pub(crate) struct Lent<DB: InboxDatabase>(Option<PoolConnection<DB>>);

impl<DB: InboxDatabase> Lent<DB> {
    /// Opens a transaction that writes.
    pub(crate) async fn begin(pool: &sqlx::Pool<DB>) -> Result<Self, InboxError> {
        let begun = async {
            let mut lent = Self(Some(pool.acquire().await?));
            if let Some(conn) = &mut lent.0 {
                DB::begin(conn).await?;
            }
            Ok(lent)
        };
        begun.await.map_err(InboxError::of::<DB>("begin"))
    }

    #[expect(
        clippy::expect_used,
        reason = "the connection is there until `commit` or `roll_back` takes the guard"
    )]
    pub(crate) fn conn(&mut self) -> &mut DB::Connection {
        self.0.as_mut().expect("lent connection")
    }

    /// Whether the transaction that was begun is the one that is open.
    pub(crate) async fn is_same(&mut self) -> Result<bool, InboxError> {
        if DB::TransactionManager::get_transaction_depth(self.conn()) != 1 {
            return Ok(false);
        }
        Shared::is_same::<DB>(self.conn()).await
    }

    pub(crate) async fn commit(mut self) -> Result<(), InboxError> {
        let committed = DB::TransactionManager::commit(self.conn()).await;
        committed.map_err(InboxError::of::<DB>("commit"))?;
        drop(self.0.take());
        Ok(())
    }

    /// Rolls back, if that is certain to leave a clean connection.
    pub(crate) async fn roll_back(mut self) {
        if DB::TransactionManager::get_transaction_depth(self.conn()) == 1
            && DB::TransactionManager::rollback(self.conn()).await.is_ok()
        {
            drop(self.0.take());
        }
    }
}

impl<DB: InboxDatabase> Drop for Lent<DB> {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}
