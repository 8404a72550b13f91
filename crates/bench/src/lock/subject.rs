//! The ways to hand a lock over.

use keylane::sqlx::{self, MySql, Postgres, Sqlite};
use keylane_lock::{LockClient, LockDatabase};

use super::{
    super::{Engine, Result},
    RESOURCE,
};

pub(super) const CREATE_ROW: &str = "CREATE TABLE keylane_bench_lock_row (id INT PRIMARY KEY); \
    INSERT INTO keylane_bench_lock_row VALUES (1)";
const READ_ROW: &str = "SELECT id FROM keylane_bench_lock_row WHERE id = 1";
const LOCK_ROW: &str = "SELECT id FROM keylane_bench_lock_row WHERE id = 1 FOR UPDATE";

/// A lock of the database's own, which lasts as long as the session.
pub(super) struct Native {
    name: &'static str,
    lock: &'static str,
    unlock: &'static str,
}

/// A database with locks that can be handed over.
pub(super) trait Hand: Engine<Pool = sqlx::Pool<Self>> + LockDatabase {
    const NATIVE: Option<Native>;
    /// Reads the row within a transaction, and keeps all others from doing so.
    const LOCK_ROW: &'static str = LOCK_ROW;
    const NAME_OF_ROW: &'static str = "row lock";
    /// Lets a session wait for a lock for a long time.
    const PATIENT: Option<&'static str> = None;
}

impl Hand for Postgres {
    const NATIVE: Option<Native> = Some(Native {
        name: "pg_advisory_lock",
        lock: "SELECT pg_advisory_lock(7331)",
        unlock: "SELECT pg_advisory_unlock(7331)",
    });
}

impl Hand for MySql {
    const NATIVE: Option<Native> = Some(Native {
        name: "GET_LOCK",
        lock: "DO GET_LOCK('keylane_bench', 600)",
        unlock: "DO RELEASE_LOCK('keylane_bench')",
    });
}

/// Transactions that write exclude one another here. A waiter asks again and again.
impl Hand for Sqlite {
    const NATIVE: Option<Native> = None;
    const LOCK_ROW: &'static str = READ_ROW;
    const NAME_OF_ROW: &'static str = "BEGIN IMMEDIATE";
    const PATIENT: Option<&'static str> = Some("PRAGMA busy_timeout = 600000");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// One client per waiter, as if each were a process.
    Clients,
    /// One client for all.
    Tasks,
    /// The lock of the database itself, with one session per waiter.
    Native,
    /// A transaction that locks a row, with one session per waiter.
    Row,
}

impl Subject {
    pub(super) fn of<E: Hand>() -> Vec<Self> {
        let native = E::NATIVE.map(|_| Self::Native);
        [Some(Self::Clients), Some(Self::Tasks), native, Some(Self::Row)].into_iter().flatten().collect()
    }

    pub(super) fn name<E: Hand>(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Tasks => "one client",
            Self::Native => E::NATIVE.map_or("", |native| native.name),
            Self::Row => E::NAME_OF_ROW,
        }
    }
}

/// One waiter.
pub(super) enum Locking<E: Hand> {
    Client(LockClient<E>),
    Native(<E as keylane::database::Database>::Connection, Native),
    Row(<E as keylane::database::Database>::Connection),
}

impl<E: Hand> Locking<E> {
    /// A waiter with a session of its own.
    pub(super) async fn session(subject: Subject, pool: &sqlx::Pool<E>) -> Result<Self> {
        let mut conn = E::connect(pool).await?;
        if let Some(patient) = E::PATIENT {
            <E as Engine>::execute(&mut conn, patient).await?;
        }
        Ok(match (subject, E::NATIVE) {
            (Subject::Native, Some(native)) => Self::Native(conn, native),
            _ => Self::Row(conn),
        })
    }

    /// Takes the lock, does the work, and releases the lock.
    pub(super) async fn turn(&mut self, inside: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        match self {
            Self::Client(locks) => {
                let guard = locks.lock(RESOURCE).await?;
                inside()?;
                Ok(guard.release().await?)
            }
            Self::Native(conn, native) => {
                <E as Engine>::execute(conn, native.lock).await?;
                inside()?;
                <E as Engine>::execute(conn, native.unlock).await
            }
            Self::Row(conn) => {
                E::begin_work(conn).await?;
                <E as Engine>::execute(conn, E::LOCK_ROW).await?;
                inside()?;
                E::commit_work(conn).await
            }
        }
    }
}
