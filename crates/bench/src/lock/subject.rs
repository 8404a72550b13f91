//! Who hands the lock over.

use keylane::sqlx::{self, MySql, Postgres};
use keylane_lock::{LockClient, LockDatabase};

use super::{
    super::{Engine, Result},
    RESOURCE,
};

pub(super) const CREATE_ROW: &str = "CREATE TABLE keylane_bench_lock_row (id INT PRIMARY KEY); \
    INSERT INTO keylane_bench_lock_row VALUES (1)";
const LOCK_ROW: &str = "SELECT id FROM keylane_bench_lock_row WHERE id = 1 FOR UPDATE";

/// A database with a lock of its own, which lasts as long as the session.
pub(super) trait Hand: Engine<Pool = sqlx::Pool<Self>> + LockDatabase {
    const NAME_OF_NATIVE: &'static str;
    const LOCK: &'static str;
    const UNLOCK: &'static str;
}

impl Hand for Postgres {
    const NAME_OF_NATIVE: &'static str = "pg_advisory_lock";
    const LOCK: &'static str = "SELECT pg_advisory_lock(7331)";
    const UNLOCK: &'static str = "SELECT pg_advisory_unlock(7331)";
}

impl Hand for MySql {
    const NAME_OF_NATIVE: &'static str = "GET_LOCK";
    const LOCK: &'static str = "DO GET_LOCK('keylane_bench', 600)";
    const UNLOCK: &'static str = "DO RELEASE_LOCK('keylane_bench')";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A client for each waiter, as if each was a process.
    Clients,
    /// One client for all.
    Tasks,
    /// The lock of the database's own, a session for each waiter.
    Native,
    /// `SELECT … FOR UPDATE` and a commit, a session for each waiter.
    Row,
}

impl Subject {
    pub(super) const ALL: [Self; 4] = [Self::Clients, Self::Tasks, Self::Native, Self::Row];

    pub(super) fn name<E: Hand>(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Tasks => "one client",
            Self::Native => E::NAME_OF_NATIVE,
            Self::Row => "row lock",
        }
    }
}

/// One waiter.
pub(super) enum Locking<E: Hand> {
    Client(LockClient<E>),
    Native(<E as keylane::Database>::Connection),
    Row(<E as keylane::Database>::Connection),
}

impl<E: Hand> Locking<E> {
    /// Takes the lock, does this, and releases it.
    pub(super) async fn turn(&mut self, inside: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        match self {
            Self::Client(locks) => {
                let guard = locks.lock(RESOURCE).await?;
                inside()?;
                Ok(guard.release().await?)
            }
            Self::Native(conn) => {
                E::execute(conn, E::LOCK).await?;
                inside()?;
                E::execute(conn, E::UNLOCK).await
            }
            Self::Row(conn) => {
                E::begin_work(conn).await?;
                E::execute(conn, LOCK_ROW).await?;
                inside()?;
                E::commit_work(conn).await
            }
        }
    }
}
