//! The databases for locks, and the way in which signals come on each.

use std::{sync::Arc, time::Duration};

use keylane_sql::SqlDatabase;

use crate::signals::{Waiter, Waiters};

/// A database for locks: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or `sqlx::Sqlite`. Sealed.
pub trait LockDatabase: SqlDatabase {
    /// How signals come.
    #[doc(hidden)]
    type Wake: Wake<Self>;
}

/// How a client learns that a ticket of another client has gone.
pub trait Wake<DB: SqlDatabase>: Send + Sync + 'static {
    /// Opens no connection yet. `direct` leads to the server itself, `pool` may lead through a pooler.
    fn new(direct: &sqlx::Pool<DB>, pool: &sqlx::Pool<DB>, waiters: Arc<Waiters>) -> Self;

    /// A ticket of this client is about to be queued.
    fn open(&self, _ticket: &str) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A ticket of this client has been deleted.
    fn close(&self, _ticket: &str) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The tickets of this client, from time to time.
    fn keep(&self, _tickets: &[&str]) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns when the ticket of another client may have gone, and after `longest` at the latest. Where no
    /// signal can come, after a poll interval.
    fn wait(&self, waiter: &Waiter, ticket: &str, longest: Duration) -> impl Future<Output = ()> + Send;
}

#[cfg(feature = "postgres")]
mod listener;
#[cfg(feature = "mysql")]
mod names;
#[cfg(feature = "sqlite")]
mod polled;
#[cfg(feature = "postgres")]
mod sessions;
