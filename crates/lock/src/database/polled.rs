//! Nothing tells another process of a commit on SQLite, so waiters look.

use std::{sync::Arc, time::Duration};

use sqlx::{Sqlite, SqlitePool};

use super::{LockDatabase, Wake};
use crate::{
    rules::SQLITE_POLL_INTERVAL,
    signals::{Ear, Ears},
};

impl LockDatabase for Sqlite {
    type Wake = Polled;
}

/// No signals but those of the own process.
#[derive(Debug)]
pub struct Polled;

impl Wake<Sqlite> for Polled {
    fn new(_: &SqlitePool, _: &SqlitePool, _: Arc<Ears>) -> Self {
        Self
    }

    async fn wait(&self, ear: &Ear, _: &str, longest: Duration) {
        ear.rung(longest.min(SQLITE_POLL_INTERVAL)).await;
    }
}
