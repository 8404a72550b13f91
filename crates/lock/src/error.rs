//! What can go wrong, as values.

use std::time::Duration;

use keylane_sql::{BadName, SqlDatabase, SqlError};

/// Why a lock could not be taken or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A call of the database has failed.
    #[error("lock: {call}: {source}")]
    Database {
        /// The name of the call.
        call: &'static str,
        /// Whether a repetition may succeed: a deadlock, a conflict of snapshots, a lost connection.
        retryable: bool,
        /// The error of the driver.
        source: SqlError,
    },
    /// The database has not answered for the length of a lease. Whether the call was carried out is not known.
    #[error("lock: {call}: no answer within {limit:?}")]
    NoAnswer {
        /// The name of the call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The wait was longer than its limit. Nothing stays in the queue.
    #[error("lock: {resource:?} was not to be had within {waited:?}: release it sooner, or wait for longer")]
    TimedOut {
        /// Which resource.
        resource: String,
        /// The limit.
        waited: Duration,
    },
    /// The lease ended without a renewal, and another client may hold the resource. The ticket of that client is
    /// untouched.
    #[error("lock: {resource:?} was lost: its lease ended before it was renewed")]
    Lost {
        /// Which resource.
        resource: String,
    },
    /// The connection is in no transaction that sqlx knows of.
    #[error("lock: the connection is in no transaction: begin one through sqlx, or use LockClient::lock")]
    NoTransaction,
    /// Another client holds the resource, and a transaction cannot wait for it: on SQLite, which has one writer, and
    /// on PostgreSQL under REPEATABLE READ and SERIALIZABLE, whose snapshot would hide what the holder writes.
    #[error("lock: {resource:?} is held, and this transaction cannot wait: roll back, and try again")]
    Held {
        /// Which resource.
        resource: String,
    },
    /// The tables are missing, or are of another version.
    #[error("lock: the tables have version {found}, but this build needs {needed}: run LockClient::migrate")]
    Schema {
        /// The version of the tables; 0 if there are none.
        found: i64,
        /// The version that this build creates.
        needed: i64,
    },
    /// A name that the table does not take.
    #[error("lock: the {what} has {length} bytes, but must have 1 to {limit}, and no NUL")]
    BadText {
        /// `resource` or `owner`.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The most bytes.
        limit: usize,
    },
    /// A name of the tables.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The lease is too short or too long.
    #[error("lock: the lease is {lease:?}, but must be 1 s to 1 day")]
    Lease {
        /// What was set.
        lease: Duration,
    },
}

impl LockError {
    /// Turns an error of sqlx into an error of this call.
    pub(crate) fn of<DB: SqlDatabase>(call: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| Self::Database {
            call,
            retryable: DB::is_retryable(&error),
            source: SqlError::of::<DB>(error),
        }
    }

    /// Whether a repetition may succeed by itself.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Database { retryable: true, .. }
                | Self::NoAnswer { .. }
                | Self::TimedOut { .. }
                | Self::Held { .. }
        )
    }
}
