//! What can go wrong, as values.

use std::time::Duration;

use keylane_sql::{BadName, SqlError};

use crate::inbox::InboxDatabase;

/// Why a call of the inbox failed. Nothing of the call has happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// A call of the database has failed.
    #[error("inbox: {call}: {source}")]
    Database {
        /// The name of the call.
        call: &'static str,
        /// Whether a repetition may succeed: a deadlock, a conflict of snapshots, a lost connection.
        retryable: bool,
        /// The error of the driver.
        source: SqlError,
    },
    /// The tables are missing, or are of another version.
    #[error("inbox: the tables have version {found}, but this build needs {needed}: run Inbox::migrate")]
    Schema {
        /// The version of the tables; 0 if there are none.
        found: i64,
        /// The version that this build creates.
        needed: i64,
    },
    /// An id or a group that does not fit the table.
    #[error("inbox: the {what} has {length} bytes, but must have 1 to {limit}, and no NUL")]
    BadId {
        /// `event id` or `consumer group`.
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
    #[error("inbox: the lease is {lease:?}, but must be 1 s to 1 day")]
    Lease {
        /// What was set.
        lease: Duration,
    },
}

/// Why a message was not consumed. Nothing of its effect is in the transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// The work failed. Its effects were rolled back.
    #[error("the work failed: {0}")]
    Work(E),
    /// Another consumer holds the message: let the broker deliver it again.
    #[error("the message {event_id} is in progress: {owner} holds it for another {left:?}")]
    InProgress {
        /// Which message.
        event_id: String,
        /// The owner.
        owner: String,
        /// How long its lease lasts, if it is not renewed.
        left: Duration,
    },
    /// The work has ended the transaction by a statement of its own. What the work has committed stays. The message
    /// has no row as consumed.
    #[error(
        "the work has ended the transaction of its message by a statement of its own, such as COMMIT, ROLLBACK \
         or (on MySQL and MariaDB) CREATE TABLE: leave the transaction to the inbox"
    )]
    Ended,
    /// The connection is in no transaction that sqlx knows of.
    #[error("the connection is in no transaction: begin one through sqlx, or use Inbox::run")]
    NoTransaction,
    /// The commit failed, or its answer was lost, so the commit may have happened or not. The next delivery finds out.
    #[error("whether the commit happened is not known: {0}")]
    Commit(InboxError),
    /// The inbox failed.
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

impl InboxError {
    /// Turns an error of sqlx into an error of this call.
    pub(crate) fn of<DB: InboxDatabase>(call: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| Self::Database {
            call,
            retryable: DB::is_retryable(&error),
            source: SqlError::of::<DB>(error),
        }
    }

    /// Whether a repetition may succeed by itself.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Database { retryable: true, .. })
    }
}

impl<E> OnceError<E> {
    /// Whether a repetition may succeed by itself, and the work is not to blame: the broker should deliver again, and
    /// count no attempt.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::InProgress { .. } => true,
            Self::Commit(error) | Self::Inbox(error) => error.is_retryable(),
            _ => false,
        }
    }
}
