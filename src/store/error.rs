//! Errors of the store, sorted by what to do about them.

use std::{error::Error, fmt};

/// What to do about a database error. One total table per dialect assigns a class to every error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Deadlock, serialization failure, lock wait: run the same work again after a short pause.
    Retry,
    /// The connection is unusable: open another one.
    Reconnect,
    /// The server is a standby or read-only: reconnect, because another server may be the primary.
    WrongNode,
    /// Disk, memory or connections are used up: wait.
    Resource,
    /// A value does not fit: the fault is in this record, not in its neighbours.
    Record,
    /// A unique key exists already.
    Duplicate,
    /// The server answers and refuses the statement or the commit: a trigger that raises, or a check of the
    /// user's schema.
    Refused,
    /// Tables, rights or versions are wrong: a person must fix them.
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

    /// Whether the same call may succeed later without a repair by a person.
    pub(crate) fn may_pass(self) -> bool {
        match self {
            Self::Retry | Self::Reconnect | Self::WrongNode | Self::Resource | Self::Duplicate => true,
            Self::Record | Self::Refused | Self::Setup => false,
        }
    }
}

/// A database call that failed, with its cause in one line. Neither `Display` nor `Debug` shows a text of the
/// server that may quote a key or a payload: they show the code and the constraint instead.
#[derive(thiserror::Error)]
#[error("{call} failed: {line}")]
#[non_exhaustive]
pub struct StoreError {
    /// The name of the call, such as `settle`.
    pub call: &'static str,
    /// What to do about the error.
    pub class: ErrorClass,
    /// The error of the driver, or the timeout. Its text may quote values, so it is not the `source()` of
    /// this error, and no report of an error prints it by default.
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

    /// An error that `Display` and `Debug` show as `line`.
    pub(crate) fn told(
        call: &'static str,
        class: ErrorClass,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
        line: String,
    ) -> Self {
        Self { call, class, cause: cause.into(), line }
    }

    /// The error and its cause in one line, the same as `Display`.
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
    /// The database is in memory: each connection would open a separate one.
    #[error(
        "an in-memory SQLite database cannot be shared between connections; use a file, or keylane::memory for tests"
    )]
    InMemory,
    /// The pool is too small: transactional handlers would starve.
    #[error(
        "the pool has at most {has} connections, but {needs} are needed (transactional_concurrency + 1); enlarge the pool or lower the setting"
    )]
    PoolTooSmall {
        /// The largest size of the pool.
        has: u32,
        /// The size that the settings need.
        needs: u32,
    },
}

/// Why a schema cannot be used by this build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The tables do not exist.
    #[error(
        "the outbox tables are missing: call Outbox::migrate(), or have a DBA run the output of `keylane migrate --print`"
    )]
    Missing,
    /// The tables are older than this build supports.
    #[error("the outbox schema is version {found}, this build needs {needed}: call Outbox::migrate()")]
    Older {
        /// The version in the database.
        found: i64,
        /// The lowest version that this build supports.
        needed: i64,
    },
    /// The tables are newer than this build supports.
    #[error("the outbox schema is version {found}, this build knows only {known}: deploy a newer build")]
    Newer {
        /// The version in the database.
        found: i64,
        /// The highest version that this build supports.
        known: i64,
    },
    /// A table or a column is missing, or has another name.
    #[error(
        "the outbox tables differ from those of schema version {expected}: {problem}; compare them with the output of `keylane migrate --print`"
    )]
    Differs {
        /// The version that this build makes.
        expected: i64,
        /// The text of the server.
        problem: String,
    },
    /// The number of partitions or the hash differs: keys would go to other partitions than the stored ones.
    #[error(
        "outbox_meta says {found}, this build hashes with {expected}: run a build that matches, or drain the outbox and recreate its tables"
    )]
    Hash {
        /// `hash % count` in the database.
        found: String,
        /// `hash % count` in this build.
        expected: String,
    },
    /// Partition rows were deleted or added by hand.
    #[error(
        "outbox_partition has {found} rows instead of 256: insert the missing partition numbers 0 to 255 with generation 0"
    )]
    Partitions {
        /// Rows found.
        found: i64,
    },
    /// The tables are delivered from in the other mode, or cannot change to claimed mode now.
    #[error(
        "the tables are in {found} mode, but this process has mode = \"{wanted}\": set the mode of the tables, or shut \
         down all instances and let no key stand still before the change; see docs/claimed.md"
    )]
    Mode {
        /// The mode of the tables.
        found: &'static str,
        /// The mode of this process.
        wanted: &'static str,
    },
    /// The server accepts no writes.
    #[error(
        "the database is read-only (a standby, or default_transaction_read_only is on): connect to the primary"
    )]
    ReadOnly,
    /// A pooler does not keep sessions: settings that the workers make on a connection would hold for other
    /// clients, and not for the workers.
    #[error(
        "the address leads through a pooler in {mode} mode, which does not keep the session of a connection: give the workers the address of the server itself, or of a pooler in session mode, by builder.worker_pool(pool)"
    )]
    Pooler {
        /// The mode of the pooler: `transaction` or `statement`.
        mode: &'static str,
    },
    /// A statement of `database.on_connect` cannot run.
    #[error("database.on_connect[{place}] {problem}")]
    OnConnect {
        /// The place of the statement, from 0 on.
        place: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The pools lead to different tables: the workers would deliver records of other producers.
    #[error(
        "the worker pool leads to other tables ({worker_pool}) than the pool ({pool}): give builder.worker_pool(pool) another address of the same database"
    )]
    WorkerPool {
        /// The identity of the tables of the pool.
        pool: String,
        /// The identity of the tables of the worker pool.
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
        /// The name of the engine.
        engine: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The server is too old.
    #[error("{server} is too old: Keylane needs {needed}")]
    Server {
        /// The server in its own words.
        server: String,
        /// The lowest supported version.
        needed: &'static str,
    },
    /// A statement failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
