//! What the quickstart asks of a database besides the outbox: a table of its own, a query of the
//! owners of the partitions, and the removal of all of it.

use std::{str::FromStr, time::Duration};

use keylane::sqlx::{
    self, AssertSqlSafe, MySqlPool, PgPool, SqlitePool,
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

use crate::flights::Flight;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The owner of a partition, as `outbox_partition` and `outbox_instance` show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    /// `ACTIVE`, `DRAINING`, `STOPPED` or `DEAD`.
    pub(crate) state: String,
}

/// A database that the show can run on. An ordinary service has one, and needs no trait for it.
pub(crate) trait Place:
    keylane::database::Database<Pool: keylane::database::Pool<Database = Self>>
{
    const TITLE: &'static str;
    /// How many transactions write flights at once.
    const WRITERS: u64;

    async fn connect(url: &str) -> Result<Self::Pool, sqlx::Error>;

    async fn execute(pool: &Self::Pool, sql: String) -> Result<(), sqlx::Error>;

    /// Writes the business row of a flight.
    async fn insert_flight(
        conn: &mut Self::Connection,
        prefix: &str,
        flight: &Flight,
    ) -> Result<(), sqlx::Error>;

    /// The owner of each partition, in their order.
    async fn owners(pool: &Self::Pool, prefix: &str) -> Result<Vec<Option<Owner>>, sqlx::Error>;

    /// Removes everything whose name begins with the prefix.
    async fn remove(pool: &Self::Pool, prefix: &str) -> Result<(), sqlx::Error>;
}

/// Creates the business table.
pub(crate) async fn create<DB: Place>(pool: &DB::Pool, prefix: &str) -> Result<(), sqlx::Error> {
    let columns = "flight_no INTEGER PRIMARY KEY, aircraft VARCHAR(32) NOT NULL, departed VARCHAR(16), \
                   origin CHAR(3) NOT NULL, dest CHAR(3) NOT NULL";
    DB::execute(pool, format!("CREATE TABLE {prefix}flight ({columns})")).await
}

macro_rules! place {
    ($database:ident, $title:literal, $writers:literal, $values:literal, $connect:expr, $listing:literal) => {
        impl Place for sqlx::$database {
            const TITLE: &'static str = $title;
            const WRITERS: u64 = $writers;

            async fn connect(url: &str) -> Result<Self::Pool, sqlx::Error> {
                $connect(url).await
            }

            async fn execute(pool: &Self::Pool, sql: String) -> Result<(), sqlx::Error> {
                sqlx::query(AssertSqlSafe(sql)).execute(pool).await.map(drop)
            }

            async fn insert_flight(
                conn: &mut Self::Connection,
                prefix: &str,
                flight: &Flight,
            ) -> Result<(), sqlx::Error> {
                let sql = format!("INSERT INTO {prefix}flight VALUES ({})", $values);
                let query = sqlx::query(AssertSqlSafe(sql)).bind(flight.row as i32).bind(flight.aircraft());
                let query = query.bind(&flight.departed).bind(&flight.origin).bind(&flight.dest);
                query.execute(conn).await.map(drop)
            }

            async fn owners(pool: &Self::Pool, prefix: &str) -> Result<Vec<Option<Owner>>, sqlx::Error> {
                let sql = format!(
                    "SELECT i.name, i.state FROM {prefix}partition p \
                     LEFT JOIN {prefix}instance i ON i.instance_id = p.owner ORDER BY p.partition_no"
                );
                let rows: Vec<(Option<String>, Option<String>)> =
                    sqlx::query_as(AssertSqlSafe(sql)).fetch_all(pool).await?;
                let owner = |(name, state): (Option<_>, Option<_>)| name.zip(state);
                let rows = rows.into_iter().map(owner);
                Ok(rows.map(|row| row.map(|(name, state)| Owner { name, state })).collect())
            }

            async fn remove(pool: &Self::Pool, prefix: &str) -> Result<(), sqlx::Error> {
                let statements: Vec<(String,)> =
                    sqlx::query_as($listing).bind(prefix).fetch_all(pool).await?;
                for (statement,) in statements {
                    Self::execute(pool, statement).await?;
                }
                Ok(())
            }
        }
    };
}

place!(
    Sqlite,
    "a SQLite file",
    1,
    "?, ?, ?, ?, ?",
    connect_sqlite,
    // Its file goes as a whole.
    "SELECT '' WHERE ? IS NULL"
);
place!(
    Postgres,
    "a PostgreSQL database",
    4,
    "$1, $2, $3, $4, $5",
    connect_postgres,
    "SELECT 'DROP TABLE ' || oid::regclass FROM pg_class WHERE relkind = 'r' AND starts_with(relname, $1) \
     UNION ALL SELECT 'DROP ROUTINE ' || oid::regprocedure FROM pg_proc WHERE starts_with(proname, $1)"
);
place!(
    MySql,
    "a MariaDB or MySQL database",
    4,
    "?, ?, ?, ?, ?",
    connect_mysql,
    "SELECT CONCAT('DROP TABLE `', table_name, '`') FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND LOCATE(?, table_name) = 1"
);

async fn connect_sqlite(url: &str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(5))
        .foreign_keys(true);
    SqlitePoolOptions::new().acquire_timeout(PATIENCE).max_connections(2).connect_with(options).await
}

async fn connect_postgres(url: &str) -> Result<PgPool, sqlx::Error> {
    PgPoolOptions::new().acquire_timeout(PATIENCE).max_connections(5).connect(url).await
}

async fn connect_mysql(url: &str) -> Result<MySqlPool, sqlx::Error> {
    // The driver knows both by this name only.
    let url = url.replacen("mariadb://", "mysql://", 1);
    MySqlPoolOptions::new().acquire_timeout(PATIENCE).max_connections(5).connect(&url).await
}
