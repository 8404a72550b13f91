//! What a server says of its clients: who is connected, and how much they have asked.

use std::{future::Future, time::Duration};

use keylane::{
    Database,
    sqlx::{self, MySql, MySqlConnection, PgConnection, Postgres, Row, Sqlite},
};

use super::super::Result;

/// A database whose clients can be counted.
pub(crate) trait Census: Database {
    /// Whether the server is this process.
    const IN_PROCESS: bool = false;
    /// Gives a session the name that those of the library have.
    const NAME_SESSION: Option<&'static str> = None;

    /// The threads of this machine that serve the sessions of the library in this database, if it tells.
    fn sessions(_: &mut Self::Connection) -> impl Future<Output = Result<Option<Vec<u32>>>> + Send {
        async { Ok(None) }
    }

    /// So late a statement may turn up in the count.
    const REPORTS_WITHIN: Duration = Duration::ZERO;
    /// What one call of [`statements`](Self::statements) finds of the last one and of itself.
    const OWN_STATEMENTS: i64 = 0;

    /// Statements that the server has run so far, if it tells.
    fn statements(_: &mut Self::Connection) -> impl Future<Output = Result<Option<i64>>> + Send {
        async { Ok(None) }
    }
}

impl Census for Postgres {
    const NAME_SESSION: Option<&'static str> = Some("SET application_name = 'keylane'");
    /// A session that has reported lately and then is idle waits so long to report the rest.
    const REPORTS_WITHIN: Duration = Duration::from_secs(10);
    const OWN_STATEMENTS: i64 = 2;

    async fn sessions(conn: &mut PgConnection) -> Result<Option<Vec<u32>>> {
        let pids = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'keylane' AND backend_type = 'client backend'",
        );
        let pids: Vec<i32> = pids.fetch_all(conn).await?;
        Ok(Some(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect()))
    }

    /// Transactions of this database: nearly all statements of an idle instance are their own.
    async fn statements(conn: &mut PgConnection) -> Result<Option<i64>> {
        // What this session has not yet reported would turn up some time later.
        sqlx::query("SELECT pg_stat_force_next_flush()").execute(&mut *conn).await?;
        let count =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        Ok(Some(sqlx::query_scalar(count).fetch_one(conn).await?))
    }
}

impl Census for MySql {
    const OWN_STATEMENTS: i64 = 1;

    /// All in this database but this one: they have no names. Only MariaDB tells their threads here.
    async fn sessions(conn: &mut MySqlConnection) -> Result<Option<Vec<u32>>> {
        let threads = sqlx::query_scalar(
            "SELECT CAST(tid AS UNSIGNED) FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID()",
        );
        let threads: std::result::Result<Vec<u64>, _> = threads.fetch_all(conn).await;
        Ok(threads
            .ok()
            .map(|threads| threads.into_iter().filter_map(|tid| u32::try_from(tid).ok()).collect()))
    }

    /// Those of the whole server.
    async fn statements(conn: &mut MySqlConnection) -> Result<Option<i64>> {
        let questions = sqlx::query("SHOW GLOBAL STATUS LIKE 'Questions'").fetch_one(conn).await?;
        Ok(Some(questions.try_get_unchecked::<String, _>(1)?.parse()?))
    }
}

impl Census for Sqlite {
    const IN_PROCESS: bool = true;
}
