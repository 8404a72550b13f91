//! The settings of a store.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::Tables;

/// The most statements of `database.on_connect`, and the longest one in bytes.
const MOST_STATEMENTS: usize = 16;
const STATEMENT_LIMIT_BYTES: usize = 4096;

/// What becomes of a completed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Completed {
    /// The row is deleted: the fastest way, and the table stays small.
    #[default]
    Delete,
    /// The row moves to `outbox_archive` in the same statement.
    Archive,
    /// The row stays, with status completed.
    Keep,
}

/// How the database is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DatabaseConfig {
    /// The longest time of one call to the database. After it, the connection of the call is closed. Default
    /// 5 s. Raise it for a slow database. Must be shorter than
    /// [`stale_instance_timeout`](crate::ClusterConfig::stale_instance_timeout), and together with the timeout
    /// of any handler fit into [`handover_timeout`](crate::ClusterConfig::handover_timeout).
    #[serde(with = "crate::duration::call_timeout")]
    pub call_timeout: Duration,
    /// Whether outcomes are committed without waiting for the disk (PostgreSQL and SQLite). Default true. A
    /// crash of the database may lose the latest outcomes, and their records are delivered again. If that is
    /// worse than slower settles, set it to false.
    pub async_settle: bool,
    /// Whether other processes are notified of commits at once (PostgreSQL; the other databases poll).
    /// Default true. `NOTIFY` is sent outside of the transactions, at most every 3 ms, on a connection that
    /// is closed after 10 s without use. A process that delivers listens on another connection. If
    /// notifications cannot work, polls find the records. A process that owns all partitions sends none. Set it
    /// to false to save these connections.
    pub notifications: bool,
    /// SQL statements that run on each new connection of the outbox, in order, before its own settings: a role,
    /// a search path; not on those that listen and notify. Connections of your pool run the pool's
    /// `after_connect` instead, which the outbox cannot see. Default none; at most 16 statements of at most 4 KiB
    /// each. Not for SQLite, whose pragmas are options of the pool. Leave it empty behind a pooler in transaction
    /// mode.
    pub on_connect: Vec<String>,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(5),
            async_settle: true,
            notifications: true,
            on_connect: Vec::new(),
        }
    }
}

impl DatabaseConfig {
    pub(crate) fn problems(&self, problems: &mut Vec<String>) {
        let statements = &self.on_connect;
        if statements.len() > MOST_STATEMENTS {
            let count = statements.len();
            problems.push(format!(
                "database.on_connect has {count} statements, but may have {MOST_STATEMENTS} at most"
            ));
        }
        for (place, statement) in statements.iter().enumerate() {
            let bytes = statement.len();
            if statement.trim().is_empty() || bytes > STATEMENT_LIMIT_BYTES {
                problems.push(format!(
                    "database.on_connect[{place}] has {bytes} bytes, but must be a statement of at most \
                     {STATEMENT_LIMIT_BYTES} bytes"
                ));
            }
        }
    }
}

/// The settings of a store. Fixed when the store is opened.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct StoreSettings {
    /// The names of the tables.
    pub tables: Tables,
    /// What becomes of completed records.
    pub completed: Completed,
    /// The longest time per database call.
    pub call_timeout: Duration,
    /// Whether a settle commits without waiting for the disk (PostgreSQL).
    pub async_settle: bool,
    /// Statements of the user for each new connection.
    pub on_connect: Arc<[String]>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let DatabaseConfig { call_timeout, async_settle, .. } = DatabaseConfig::default();
        let (tables, completed) = (Tables::default(), Completed::default());
        Self { tables, completed, call_timeout, async_settle, on_connect: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(on_connect: Vec<String>) -> Vec<String> {
        let mut problems = Vec::new();
        DatabaseConfig { on_connect, ..DatabaseConfig::default() }.problems(&mut problems);
        problems
    }

    #[test]
    fn statements_for_new_connections_have_limits() {
        let statement = "SET ROLE orders".to_owned();
        let longest = "x".repeat(STATEMENT_LIMIT_BYTES);
        assert!(problems(vec![statement.clone(); MOST_STATEMENTS]).is_empty());
        assert!(problems(vec![longest.clone()]).is_empty());
        assert_eq!(
            problems(vec![statement.clone(); MOST_STATEMENTS + 1]),
            ["database.on_connect has 17 statements, but may have 16 at most"]
        );
        let refused = problems(vec![statement, " ".to_owned(), longest + "x"]);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("database.on_connect[1] has 1 bytes"), "{refused:?}");
        assert!(refused[1].starts_with("database.on_connect[2] has 4097 bytes"), "{refused:?}");
    }
}
