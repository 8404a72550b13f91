//! Errors of the store, sorted by what to do about them.

use std::{error::Error, fmt};

/// What to do about a database error. One total table per dialect sorts every error into these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Deadlock, serialization failure, lock wait: run the same again, after a short pause.
    Retry,
    /// The connection is of no more use.
    Reconnect,
    /// The server is a standby or read-only: reconnect, there may be another primary.
    WrongNode,
    /// Disk, memory or connections are used up: wait.
    Resource,
    /// A value does not fit: this record is at fault, not its neighbours.
    Record,
    /// A unique key exists already.
    Duplicate,
    /// The server answers, and refuses the statement or the commit: a trigger that raises, a check of the
    /// user's own.
    Refused,
    /// Tables, rights or versions are wrong: a person must act.
    Setup,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 8] = [
        Self::Retry,
        Self::Reconnect,
        Self::WrongNode,
        Self::Resource,
        Self::Record,
        Self::Duplicate,
        Self::Refused,
        Self::Setup,
    ];

    /// Whether the same call may succeed later though nobody has fixed anything.
    pub(crate) fn may_pass(self) -> bool {
        match self {
            Self::Retry | Self::Reconnect | Self::WrongNode | Self::Resource | Self::Duplicate => true,
            Self::Record | Self::Refused | Self::Setup => false,
        }
    }
}

/// A database call that failed, with its cause in one line. A text of the server that may quote a key or
/// a payload is in neither `Display` nor `Debug`: there, the code and the constraint stand for it.
#[derive(thiserror::Error)]
#[error("{call} failed: {line}")]
#[non_exhaustive]
pub struct StoreError {
    /// Which call, such as `settle`.
    pub call: &'static str,
    /// What to do about it.
    pub class: ErrorClass,
    /// The driver's error as it came, or the timeout; its text may quote values. It is not the
    /// `source()` of this error, so that no report of an error prints it unasked.
    pub cause: Box<dyn Error + Send + Sync>,
    line: String,
}

impl StoreError {
    /// An error whose text may be shown.
    pub(crate) fn new(
        call: &'static str,
        class: ErrorClass,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        let line = cause.to_string();
        Self::told(call, class, cause, line)
    }

    /// An error that is told by this line.
    pub(crate) fn told(
        call: &'static str,
        class: ErrorClass,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
        line: String,
    ) -> Self {
        Self { call, class, cause: cause.into(), line }
    }

    /// The error and its cause in one line, as `Display` has it.
    pub fn chain(&self) -> String {
        self.to_string()
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, class, line, .. } = self;
        f.debug_struct("StoreError").field("call", call).field("class", class).field("cause", line).finish()
    }
}

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Each connection to it would be another database.
    #[error(
        "an in-memory SQLite database cannot be shared between connections; use a file, or keylane::memory for tests"
    )]
    InMemory,
    /// Transactional handlers would starve.
    #[error(
        "the pool has at most {has} connections, but {needs} are needed (transactional_concurrency + 1); enlarge the pool or lower the setting"
    )]
    PoolTooSmall {
        /// Its largest size.
        has: u32,
        /// What the settings need.
        needs: u32,
    },
}

/// Why a schema cannot be used by this build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The tables are not there.
    #[error(
        "the outbox tables are missing: call Outbox::migrate(), or have a DBA run the output of `keylane migrate --print`"
    )]
    Missing,
    /// The tables are older than this build needs.
    #[error("the outbox schema is version {found}, this build needs {needed}: call Outbox::migrate()")]
    Older {
        /// In the database.
        found: i64,
        /// In this build.
        needed: i64,
    },
    /// The tables are newer than this build knows.
    #[error("the outbox schema is version {found}, this build knows only {known}: deploy a newer build")]
    Newer {
        /// In the database.
        found: i64,
        /// In this build.
        known: i64,
    },
    /// A table or a column is missing, or has another name.
    #[error(
        "the outbox tables differ from those of schema version {expected}: {problem}; compare them with the output of `keylane migrate --print`"
    )]
    Differs {
        /// The version that this build makes.
        expected: i64,
        /// What the server says.
        problem: String,
    },
    /// Keys would go to other partitions than those stored.
    #[error(
        "outbox_meta says {found}, this build hashes with {expected}: run a build that matches, or drain the outbox and recreate its tables"
    )]
    Hash {
        /// `hash % count` in the database.
        found: String,
        /// `hash % count` in this build.
        expected: String,
    },
    /// Someone deleted or added partition rows.
    #[error(
        "outbox_partition has {found} rows instead of 256: insert the missing partition numbers 0 to 255 with generation 0"
    )]
    Partitions {
        /// Rows found.
        found: i64,
    },
    /// The server accepts no writes.
    #[error(
        "the database is read-only (a standby, or default_transaction_read_only is on): connect to the primary"
    )]
    ReadOnly,
    /// Settings that the workers make on a connection would hold for other clients, and not for the workers.
    #[error(
        "the address leads through a pooler in {mode} mode, which does not keep the session of a connection: give the workers the address of the server itself, or of a pooler in session mode, by builder.worker_pool(pool)"
    )]
    Pooler {
        /// Its mode: `transaction` or `statement`.
        mode: &'static str,
    },
    /// The workers would deliver what somebody else has scheduled.
    #[error(
        "the worker pool leads to other tables ({worker_pool}) than the pool ({pool}): give builder.worker_pool(pool) another address of the same database"
    )]
    WorkerPool {
        /// What tells the tables of the pool from all others.
        pool: String,
        /// The same of the worker pool.
        worker_pool: String,
    },
    /// Ids would not follow the order of inserts.
    #[error(
        "the server hands out ids in steps of {step} (auto_increment_increment), as multi-primary clusters do: ids then do not follow the order of inserts; route all writers to one node and set the step to 1"
    )]
    IdStep {
        /// The step.
        step: i64,
    },
    /// The engine speaks the dialect, but would break the order of a key.
    #[error(
        "{engine} is not supported: {reason}, so records of a key would lose their order; use PostgreSQL, MariaDB, MySQL or SQLite"
    )]
    Engine {
        /// Its name.
        engine: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The server is too old.
    #[error("{server} is too old: Keylane needs {needed}")]
    Server {
        /// As the server names itself.
        server: String,
        /// The least version.
        needed: &'static str,
    },
    /// A statement failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
