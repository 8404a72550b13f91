//! Migrations and the checks before anything runs.

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
    dialect::Family,
    driver::{Driver, Kind},
    proof::as_schema_error,
    statements::safe,
};
use crate::{
    partition::{PARTITION_COUNT, PARTITION_HASH},
    store::{ErrorClass, SchemaError, SchemaStore, StoreError},
};

/// The schema version that this build needs: the number of its last migration.
pub(crate) const SCHEMA_VERSION: i64 = 3;

/// A migration may take long on a busy server.
const MIGRATION_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);
/// How often a migration that met another one is tried again.
const MIGRATION_TRIES: u32 = 20;

macro_rules! migrations {
    ($($number:literal $name:literal),* $(,)?) => {
        /// Number, name and text of each migration.
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

migrations!(1 "0001_create_outbox", 2 "0002_schedule_from_sql", 3 "0003_steps_and_starts");

#[async_trait]
impl<D: Driver> SchemaStore for SqlStore<D> {
    async fn migrate(&self) -> Result<(), SchemaError> {
        self.prove().await?;
        // Tables that a DBA has made by hand have no history; their version says that they are there.
        if self.version().await? == Some(SCHEMA_VERSION) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.migrate_once().await {
                Ok(()) => return Ok(()),
                // SQLite has no lock around migrations: the one that came second starts again.
                Err(error) if tries < MIGRATION_TRIES && !lacks_right::<D>(&error) => {
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
        match self.version().await? {
            None => return Err(SchemaError::Missing),
            Some(found) if found < SCHEMA_VERSION => {
                return Err(SchemaError::Older { found, needed: SCHEMA_VERSION });
            }
            Some(found) if found > SCHEMA_VERSION => {
                return Err(SchemaError::Newer { found, known: SCHEMA_VERSION });
            }
            Some(_) => {}
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
            probed => probed.map(|_| ()).map_err(SchemaError::from),
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

    fn script(&self) -> String {
        let tables = &self.settings.tables;
        let mut script = String::new();
        for (_, name, text) in migrations(D::FAMILY) {
            script.push_str(&format!("-- {name}\n"));
            script.push_str(&fill(text, tables));
            script.push('\n');
        }
        script
    }
}

impl<D: Driver> SqlStore<D> {
    /// Before anything is set: the address keeps the session of a connection.
    async fn prove(&self) -> Result<(), SchemaError> {
        let proven = self.call("find pooler", self.proof.of::<D>(&self.pool)).await;
        proven.map_err(as_schema_error)
    }

    async fn version(&self) -> Result<Option<i64>, StoreError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Text];
        self.call("meta", async {
            let mut conn = self.control.borrow().await?;
            match query::<D>(&mut conn, safe(&self.sql.meta), Vec::new(), KINDS).await {
                Ok(rows) => {
                    conn.keep();
                    Ok(rows.first().map(|row| row.int(0)))
                }
                Err(error) if lacks_table::<D>(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
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

    async fn migrate_once(&self) -> Result<(), StoreError> {
        let tables = &self.settings.tables;
        let migrations = migrations(D::FAMILY).into_iter().map(|(number, name, text)| {
            let sql = AssertSqlSafe(fill(text, tables)).into_sql_str();
            let name = name.get(5..).unwrap_or(name).replace('_', " ");
            Migration::new(number, Cow::Owned(name), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(format!("{}migration", tables.qualifier()));
        let session =
            super::Session { role: super::Role::Control, timeout: MIGRATION_LIMIT, async_commit: false };
        within::<D, ()>("migrate", MIGRATION_LIMIT, async {
            let mut conn = D::connect(&self.pool, session).await?;
            if let Some(schema) = tables.schema().filter(|_| D::FAMILY == Family::Postgres) {
                create_schema::<D>(&mut conn, schema).await?;
            }
            if D::FAMILY == Family::MySql {
                // sqlx asks for its lock with a time limit of -1, which MariaDB does not take: it goes
                // on without one. This one is given back when the connection is closed.
                let (name, limit) = (tables.prefix(), MIGRATION_LIMIT.as_secs());
                let lock = AssertSqlSafe(Arc::from(format!("DO GET_LOCK('keylane {name}', {limit})")));
                D::script(&mut conn, lock).await?;
            }
            // What the server has said is sorted and told as that of any other statement.
            D::migrate(&mut conn, &migrator).await.map_err(|error| match error {
                MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error,
                other => other.into(),
            })
        })
        .await
    }
}

/// Creates a schema of PostgreSQL that is not there: `IF NOT EXISTS` needs the right to create one also
/// where it exists.
async fn create_schema<D: Driver>(conn: &mut D::Connection, schema: &str) -> Result<(), sqlx::Error> {
    let look = AssertSqlSafe(Arc::from("SELECT count(*) FROM pg_namespace WHERE nspname = $1"));
    let found = query::<D>(conn, look, vec![schema.into()], &[Kind::Int]).await?;
    match found.first().is_some_and(|row| row.int(0) > 0) {
        true => Ok(()),
        false => {
            let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
            D::script(conn, AssertSqlSafe(Arc::from(create))).await
        }
    }
}

fn fill(text: &str, tables: &crate::store::Tables) -> String {
    text.replace("{outbox}", &tables.qualifier()).replace("{index}", tables.prefix())
}
