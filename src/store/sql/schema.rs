//! Migrations, and the checks before work begins.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use super::{
    SqlStore,
    call::{query, within},
    cause::{lacks_right, lacks_table},
    connecting::connect,
    dialect::Family,
    driver::{Driver, Kind},
    grants,
    proof::as_schema_error,
    statements::safe,
};
use crate::{
    partition::{PARTITION_COUNT, PARTITION_HASH},
    store::{ErrorClass, Rights, SCHEMA_VERSIONS, SchemaError, SchemaStore, StoreError},
};

/// The schema version that this build makes: the number of its last migration.
pub(crate) const SCHEMA_VERSION: i64 = 5;

/// The longest time of a migration, which may take long on a busy server.
const MIGRATION_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);
/// The most tries of a migration that meets another one.
const MIGRATION_TRIES: u32 = 20;

macro_rules! migrations {
    ($($number:literal $name:literal),* $(,)?) => {
        /// The number, name and text of each migration.
        fn migrations(family: Family) -> Vec<(i64, &'static str, &'static str)> {
            vec![$((
                $number,
                $name,
                match family {
                    Family::Postgres => include_str!(concat!("../../../migrations/postgres/", $name, ".sql")),
                    Family::MySql => include_str!(concat!("../../../migrations/mysql/", $name, ".sql")),
                    Family::Sqlite => include_str!(concat!("../../../migrations/sqlite/", $name, ".sql")),
                },
            )),*]
        }
    };
}

migrations!(
    1 "0001_create_outbox",
    2 "0002_schedule_from_sql",
    3 "0003_steps_and_starts",
    4 "0004_calls_and_dead_letters",
    5 "0005_claimed_mode",
);

#[async_trait]
impl<D: Driver> SchemaStore for SqlStore<D> {
    async fn migrate(&self) -> Result<(), SchemaError> {
        self.prove().await?;
        let mut tries = 0;
        loop {
            let found = self.found().await?;
            let from = match found {
                Found::Nothing => 0,
                Found::NoVersion => match self.take_over().await {
                    // MySQL commits each table separately: another process may be in the middle of its
                    // migration.
                    Err(SchemaError::Differs { .. }) if D::FAMILY == Family::MySql => 0,
                    taken => return taken,
                },
                Found::Version(version) if version < SCHEMA_VERSION => version,
                Found::Version(_) => return self.fits().await,
            };
            tries += 1;
            match self.migrate_from(from).await {
                Ok(()) => return self.fits().await,
                Err(error) if tries < MIGRATION_TRIES && self.may_go_on(&error, found).await => {
                    let pause = std::time::Duration::from_millis(50) * tries;
                    tracing::debug!(target: "keylane", error = %error, "migration tried again");
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn check(&self) -> Result<(), SchemaError> {
        self.prove().await?;
        match self.found().await? {
            Found::Nothing | Found::NoVersion => return Err(SchemaError::Missing),
            Found::Version(found) if found < *SCHEMA_VERSIONS.start() => {
                return Err(SchemaError::Older { found, needed: *SCHEMA_VERSIONS.start() });
            }
            Found::Version(_) => self.fits().await?,
        }
        self.check_partitions().await?;
        self.call("check server", async {
            let mut conn = self.control.borrow().await?;
            let problem = D::check_server(&mut conn).await?;
            conn.keep();
            Ok(problem)
        })
        .await?
        .map_or(Ok(()), Err)?;
        match self.write("probe write", &self.sql.probe_write, Vec::new()).await {
            Err(StoreError { class: ErrorClass::WrongNode, .. }) => Err(SchemaError::ReadOnly),
            answer => answer.map(|_| ()).map_err(SchemaError::from),
        }
    }

    async fn identity(&self) -> Result<String, StoreError> {
        self.call("identity", async {
            let mut conn = self.plain.borrow().await?;
            match D::query_text(&mut conn, safe(&self.sql.identity), &[Kind::Text]).await {
                Ok(rows) => {
                    conn.keep();
                    Ok(rows.first().map(|row| row.text(0)).unwrap_or_default())
                }
                Err(error) if lacks_table::<D>(&error) => Ok("none".to_owned()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    fn grants(&self, rights: Rights, to: &str) -> String {
        grants::script(D::FAMILY, rights, &self.settings.tables, to)
    }

    fn script(&self, from: i64) -> String {
        let tables = &self.settings.tables;
        let mut script = String::new();
        for (_, name, text) in migrations(D::FAMILY).into_iter().filter(|(number, ..)| *number > from) {
            script.push_str(&format!("-- {name}\n"));
            let text = named(text, tables);
            script.push_str(&if D::FAMILY == Family::MySql { for_mysql_client(&text) } else { text });
            script.push('\n');
        }
        script
    }
}

/// The state of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The tables have no row that says their version.
    NoVersion,
    Version(i64),
}

impl<D: Driver> SqlStore<D> {
    /// Tests that the address keeps the session of a connection, before a setting is made.
    async fn prove(&self) -> Result<(), SchemaError> {
        let proven = self.call("find pooler", self.proof.of::<D>(&self.pool)).await;
        proven.map_err(as_schema_error)
    }

    async fn found(&self) -> Result<Found, SchemaError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Text];
        let found = self.call("meta", async {
            let mut conn = self.control.borrow().await?;
            match query::<D>(&mut conn, safe(&self.sql.meta), Vec::new(), KINDS).await {
                Ok(rows) => {
                    conn.keep();
                    Ok(rows.first().map_or(Found::NoVersion, |row| Found::Version(row.int(0))))
                }
                Err(error) if lacks_table::<D>(&error) => Ok(Found::Nothing),
                Err(error) => Err(error),
            }
        });
        found.await.map_err(as_schema_error)
    }

    /// Checks that the tables have what this build needs. Tables of a newer version may have more.
    async fn fits(&self) -> Result<(), SchemaError> {
        if let Found::Version(found) = self.found().await?
            && found > *SCHEMA_VERSIONS.end()
        {
            return Err(SchemaError::Newer { found, known: *SCHEMA_VERSIONS.end() });
        }
        match self.read("shape", safe(&self.sql.shape), Vec::new(), &[]).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == ErrorClass::Setup && !lacks_right::<D>(&error) => {
                Err(SchemaError::Differs { expected: SCHEMA_VERSION, problem: error.chain() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the version of tables that have the shape of this build's.
    async fn take_over(&self) -> Result<(), SchemaError> {
        self.fits().await?;
        let count = PARTITION_COUNT as i64;
        let values = vec![SCHEMA_VERSION.into(), count.into(), PARTITION_HASH.into()];
        match self.write("write version", &self.sql.write_version, values).await {
            // Another process has written the version first.
            Err(StoreError { class: ErrorClass::Duplicate, .. }) => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }

    /// Whether a failed migration may succeed if tried at once: the class of the error allows it, or another
    /// process has migrated meanwhile. SQLite has no lock around migrations.
    async fn may_go_on(&self, error: &StoreError, before: Found) -> bool {
        match error.class {
            ErrorClass::Retry | ErrorClass::Reconnect | ErrorClass::Resource | ErrorClass::Duplicate => true,
            _ => self.found().await.is_ok_and(|now| now != before),
        }
    }

    async fn check_partitions(&self) -> Result<(), SchemaError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Text];
        let (meta, counted) = self
            .call("meta", async {
                let mut conn = self.control.borrow().await?;
                let meta = query::<D>(&mut conn, safe(&self.sql.meta), Vec::new(), KINDS).await?;
                let counted =
                    query::<D>(&mut conn, safe(&self.sql.count_partitions), Vec::new(), &[Kind::Int]).await?;
                conn.keep();
                Ok((meta, counted))
            })
            .await?;
        let expected = format!("{PARTITION_HASH} % {PARTITION_COUNT}");
        let found = meta.first().map(|row| format!("{} % {}", row.text(2), row.int(1))).unwrap_or_default();
        if found != expected {
            return Err(SchemaError::Hash { found, expected });
        }
        match counted.first().map_or(0, |row| row.int(0)) {
            256 => Ok(()),
            found => Err(SchemaError::Partitions { found }),
        }
    }

    /// Runs the migrations after a version. The version comes from the tables, because tables that a DBA has
    /// made have no history of sqlx.
    async fn migrate_from(&self, from: i64) -> Result<(), StoreError> {
        let tables = &self.settings.tables;
        let migrations = migrations(D::FAMILY).into_iter().filter(|(number, ..)| *number > from);
        let migrations = migrations.map(|(number, name, text)| {
            let sql = AssertSqlSafe(named(text, tables)).into_sql_str();
            let name = name.get(5..).unwrap_or(name).replace('_', " ");
            Migration::new(number, Cow::Owned(name), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.set_ignore_missing(true);
        migrator.dangerous_set_table_name(format!("{}migration", tables.qualifier()));
        let session =
            super::Session { role: super::Role::Control, timeout: MIGRATION_LIMIT, async_commit: false };
        within::<D, ()>("migrate", MIGRATION_LIMIT, async {
            let mut conn = connect::<D>(&self.pool, session, &self.settings.on_connect).await?;
            if let Some(schema) = tables.schema().filter(|_| D::FAMILY == Family::Postgres) {
                create_schema::<D>(&mut conn, schema).await?;
            }
            if D::FAMILY == Family::MySql {
                // sqlx asks for its lock with a time limit of -1, which MariaDB does not accept: sqlx then
                // goes on without a lock. This lock is released when the connection is closed.
                let (name, limit) = (tables.prefix(), MIGRATION_LIMIT.as_secs());
                let lock = AssertSqlSafe(Arc::from(format!("DO GET_LOCK('keylane {name}', {limit})")));
                D::script(&mut conn, lock).await?;
            }
            // The error of the server is classified as that of any other statement.
            D::migrate(&mut conn, &migrator).await.map_err(|error| match error {
                MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error,
                other => other.into(),
            })
        })
        .await
    }
}

/// Creates a schema of PostgreSQL if it does not exist. `IF NOT EXISTS` needs the right to create even if the
/// schema exists, and fails if another process creates the schema at the same time.
async fn create_schema<D: Driver>(conn: &mut D::Connection, schema: &str) -> Result<(), sqlx::Error> {
    if has_schema::<D>(conn, schema).await? {
        return Ok(());
    }
    let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
    match D::script(conn, AssertSqlSafe(Arc::from(create))).await {
        Err(error) if !has_schema::<D>(conn, schema).await? => Err(error),
        _ => Ok(()),
    }
}

async fn has_schema<D: Driver>(conn: &mut D::Connection, schema: &str) -> Result<bool, sqlx::Error> {
    let search = AssertSqlSafe(Arc::from("SELECT count(*) FROM pg_namespace WHERE nspname = $1"));
    let found = query::<D>(conn, search, vec![schema.into()], &[Kind::Int]).await?;
    Ok(found.first().is_some_and(|row| row.int(0) > 0))
}

/// Adds delimiters for the mysql client, which would otherwise split the body of a procedure.
fn for_mysql_client(text: &str) -> String {
    text.replace("\nCREATE PROCEDURE", "\nDELIMITER //\nCREATE PROCEDURE")
        .replace("\nEND;\n", "\nEND//\nDELIMITER ;\n")
}

fn named(text: &str, tables: &crate::store::Tables) -> String {
    text.replace("{outbox}", &tables.qualifier()).replace("{index}", tables.prefix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_works_with_the_schema_of_the_next() {
        assert!(SCHEMA_VERSIONS.contains(&SCHEMA_VERSION));
        assert_eq!(*SCHEMA_VERSIONS.end(), SCHEMA_VERSION + 1);
        for family in [Family::Postgres, Family::MySql, Family::Sqlite] {
            assert_eq!(migrations(family).last().map(|(number, ..)| *number), Some(SCHEMA_VERSION));
        }
    }
}
