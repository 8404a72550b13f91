//! What differs between the databases beyond the fragments of their dialects: data, not code.

use keylane_sql::{SqlDatabase, by_family};

use crate::statements::{TAKE_MYSQL, TAKE_POSTGRES, TAKE_SQLITE, WRITE_FAILURE_MYSQL, WRITE_FAILURE_UPSERT};

/// Marks a transaction on databases where the taking does not. `begin` does the same.
const SET_MARK: &str = "SAVEPOINT keylane_inbox";
/// Removes the mark, and fails if the transaction has ended.
const TAKE_MARK: &str = "RELEASE SAVEPOINT keylane_inbox";

/// The templates of one family of databases.
#[derive(Debug)]
pub(crate) struct Templates {
    /// An element of the list in `$5`, and the source of the elements.
    pub(crate) each: (&'static str, &'static str),
    /// A lock on the rows that are read, where a plain read would see the past.
    pub(crate) latest: &'static str,
    /// A condition that holds in the transaction that has taken the messages.
    pub(crate) marked: &'static str,
    /// Opens a transaction that writes, and marks it.
    pub(crate) begin: &'static str,
    /// Sets and takes a mark, where no condition tells.
    pub(crate) mark: Option<(&'static str, &'static str)>,
    pub(crate) take: &'static str,
    pub(crate) write_failure: &'static str,
    /// Deletes the oldest rows of a status, at most `$3`.
    pub(crate) purge: &'static str,
    pub(crate) migration: &'static str,
}

impl Templates {
    pub(crate) fn of<DB: SqlDatabase>() -> &'static Self {
        by_family::<DB, _>(&POSTGRES, &MYSQL, &SQLITE)
    }
}

const POSTGRES: Templates = Templates {
    each: ("x", "FROM unnest($5::text[]) AS x"),
    latest: "",
    marked: " AND current_setting('keylane.inbox', true) = token",
    begin: "BEGIN",
    mark: None,
    take: TAKE_POSTGRES,
    write_failure: WRITE_FAILURE_UPSERT,
    purge: "DELETE FROM {inbox}message m USING (SELECT consumer_group, event_id FROM {inbox}message \
        WHERE status = $1 AND {old} LIMIT $3 FOR UPDATE SKIP LOCKED) old \
        WHERE m.consumer_group = old.consumer_group AND m.event_id = old.event_id",
    migration: include_str!("../migrations/0001_postgres.sql"),
};

const MYSQL: Templates = Templates {
    each: ("", ""),
    // A plain read of REPEATABLE READ would not see what was committed meanwhile.
    latest: " FOR UPDATE",
    marked: "",
    begin: "START TRANSACTION; SAVEPOINT keylane_inbox",
    mark: Some((SET_MARK, TAKE_MARK)),
    take: TAKE_MYSQL,
    write_failure: WRITE_FAILURE_MYSQL,
    purge: "DELETE FROM {inbox}message WHERE status = $1 AND {old} LIMIT $3",
    migration: include_str!("../migrations/0001_mysql.sql"),
};

const SQLITE: Templates = Templates {
    // Without a condition, ON would belong to a join.
    each: ("value", "FROM json_each($5) WHERE true"),
    latest: "",
    marked: "",
    // A transaction that reads first could not write once another has.
    begin: "BEGIN IMMEDIATE; SAVEPOINT keylane_inbox",
    mark: Some((SET_MARK, TAKE_MARK)),
    take: TAKE_SQLITE,
    write_failure: WRITE_FAILURE_UPSERT,
    purge: "DELETE FROM {inbox}message WHERE (consumer_group, event_id) IN (SELECT consumer_group, event_id \
        FROM {inbox}message WHERE status = $1 AND {old} LIMIT $3)",
    migration: include_str!("../migrations/0001_sqlite.sql"),
};
