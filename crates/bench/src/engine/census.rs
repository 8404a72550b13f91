//! The facts that a server tells about its clients.

use std::future::Future;

use keylane::{
    database::Database,
    sqlx::{self, MySql, MySqlConnection, PgConnection, Postgres, Sqlite},
};

use super::super::Result;

/// A database whose clients can be counted.
pub(crate) trait Census: Database {
    /// Whether the server is this process.
    const IN_PROCESS: bool = false;
    /// Gives a session the name of the library's sessions.
    const NAME_SESSION: Option<&'static str> = None;

    /// The threads of this machine that serve the sessions of the library in this database. `None` if the server does
    /// not tell.
    fn sessions(_: &mut Self::Connection) -> impl Future<Output = Result<Option<Vec<u32>>>> + Send {
        async { Ok(None) }
    }
}

impl Census for Postgres {
    const NAME_SESSION: Option<&'static str> = Some("SET application_name = 'keylane'");

    async fn sessions(conn: &mut PgConnection) -> Result<Option<Vec<u32>>> {
        let pids = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'keylane' AND backend_type = 'client backend'",
        );
        let pids: Vec<i32> = pids.fetch_all(conn).await?;
        Ok(Some(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect()))
    }
}

impl Census for MySql {
    /// All sessions of this database except this one, because sessions have no names here. Only MariaDB tells their
    /// threads.
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
}

impl Census for Sqlite {
    const IN_PROCESS: bool = true;
}
