//! What differs between the databases beyond the fragments of their dialects: data, not code.

use keylane_sql::{SqlDatabase, by_family};

use crate::statements::{
    DRAW_MYSQL, DRAW_POSTGRES, DRAW_SQLITE, LEAVE, LEAVE_POSTGRES, QUEUE, QUEUE_POSTGRES,
};

/// Whether a transaction that has drawn a token can wait for holders.
#[derive(Debug)]
pub(crate) enum Waits {
    Always,
    /// This statement reads whether the transaction can wait, as a number. A snapshot from before must not hide what
    /// the holders write meanwhile.
    If(&'static str),
    /// The database has one writer, so no holder could release meanwhile.
    Never,
}

/// The templates of one family of databases.
#[derive(Debug)]
pub(crate) struct Templates {
    /// Draws the next token of a resource.
    pub(crate) draw: &'static str,
    /// Queues a ticket with the token that was drawn before, or that the statement draws itself.
    pub(crate) queue: &'static str,
    /// Deletes a ticket, and tells its waiters.
    pub(crate) leave: &'static str,
    pub(crate) purge: &'static str,
    /// Whether a transaction can wait for earlier requests.
    pub(crate) waits: Waits,
    pub(crate) migration: &'static str,
}

impl Templates {
    pub(crate) fn of<DB: SqlDatabase>() -> &'static Self {
        by_family::<DB, _>(&POSTGRES, &MYSQL, &SQLITE)
    }
}

const POSTGRES: Templates = Templates {
    draw: DRAW_POSTGRES,
    queue: QUEUE_POSTGRES,
    leave: LEAVE_POSTGRES,
    purge: "DELETE FROM {lock}resource r USING (SELECT resource FROM {lock}resource u \
        WHERE used_at < {ago:$1} AND NOT EXISTS (SELECT FROM {lock}ticket t WHERE t.resource = u.resource) \
        LIMIT $2 FOR UPDATE SKIP LOCKED) old WHERE r.resource = old.resource",
    waits: Waits::If(
        "SELECT (current_setting('transaction_isolation') IN ('read committed', 'read uncommitted'))::int::int8",
    ),
    migration: include_str!("../migrations/0001_postgres.sql"),
};

const MYSQL: Templates = Templates {
    draw: DRAW_MYSQL,
    queue: QUEUE,
    leave: LEAVE,
    purge: "DELETE FROM {lock}resource WHERE used_at < {ago:$1} \
        AND NOT EXISTS (SELECT 1 FROM {lock}ticket t WHERE t.resource = {lock}resource.resource) LIMIT $2",
    waits: Waits::Always,
    migration: include_str!("../migrations/0001_mysql.sql"),
};

const SQLITE: Templates = Templates {
    draw: DRAW_SQLITE,
    queue: QUEUE,
    leave: LEAVE,
    purge: "DELETE FROM {lock}resource WHERE resource IN (SELECT resource FROM {lock}resource u \
        WHERE used_at < {ago:$1} AND NOT EXISTS (SELECT 1 FROM {lock}ticket t WHERE t.resource = u.resource) \
        LIMIT $2)",
    waits: Waits::Never,
    migration: include_str!("../migrations/0001_sqlite.sql"),
};
