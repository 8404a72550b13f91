//! Nothing tells another process of a commit on SQLite, so waiters poll.

use std::{sync::Arc, time::Duration};

use sqlx::{Sqlite, SqlitePool};

use super::{LockDatabase, Wake};
use crate::{
    rules::SQLITE_POLL_INTERVAL,
    signals::{Waiter, Waiters},
};

impl LockDatabase for Sqlite {
    type Wake = Polled;
}

/// No signals but those of the own process.
#[derive(Debug)]
pub struct Polled;

impl Wake<Sqlite> for Polled {
    fn new(_: &SqlitePool, _: &SqlitePool, _: Arc<Waiters>) -> Self {
        Self
    }

    async fn wait(&self, waiter: &Waiter, _: &str, longest: Duration) {
        waiter.notified(longest.min(SQLITE_POLL_INTERVAL)).await;
    }
}
