//! A connection of the user's pool for one call.

use sqlx::pool::PoolConnection;

use crate::{database::LockDatabase, error::LockError};

/// Unless it is given back, dropping it takes the connection out of the pool and closes it: a call that was cut
/// off may have left a statement or a transaction open there.
pub(crate) struct Lent<DB: LockDatabase>(Option<PoolConnection<DB>>);

impl<DB: LockDatabase> Lent<DB> {
    pub(crate) async fn from(pool: &sqlx::Pool<DB>) -> Result<Self, LockError> {
        pool.acquire().await.map(|conn| Self(Some(conn))).map_err(LockError::of::<DB>("connect"))
    }

    #[expect(clippy::expect_used, reason = "the connection is there until `give_back` takes the guard")]
    pub(crate) fn conn(&mut self) -> &mut DB::Connection {
        self.0.as_mut().expect("lent connection")
    }

    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<DB: LockDatabase> Drop for Lent<DB> {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}
