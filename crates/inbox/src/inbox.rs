//! The inbox and its settings.

use std::{fmt, sync::Arc, time::Duration};

use keylane_sql::{Lent, Placement, Schema, SqlDatabase, Tables, Value};

use crate::{
    core::{LONGEST_GROUP, Shared},
    error::InboxError,
    statements::Statements,
    templates::Templates,
};

/// The version of the schema that this build creates.
const SCHEMA_VERSION: i64 = 1;
/// A number that distinguishes these tables from those of other crates.
const SCHEMA_NUMBER: i64 = 77_316_530_231;

/// A database for an inbox: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or `sqlx::Sqlite`. Sealed.
pub trait InboxDatabase: SqlDatabase {}

impl<DB: SqlDatabase> InboxDatabase for DB {}

/// Remembers in a table which messages were consumed. Clones are cheap.
pub struct Inbox<DB: InboxDatabase> {
    pub(crate) pool: sqlx::Pool<DB>,
    pub(crate) shared: Arc<Shared>,
}

impl<DB: InboxDatabase> Clone for Inbox<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<DB: InboxDatabase> fmt::Debug for Inbox<DB> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inbox").field("owner", &self.shared.owner).finish_non_exhaustive()
    }
}

/// The settings of an inbox.
#[derive(Debug)]
#[must_use = "call build"]
pub struct InboxBuilder<DB: InboxDatabase> {
    pool: sqlx::Pool<DB>,
    placement: Placement,
    owner: String,
    lease: Duration,
}

impl<DB: InboxDatabase> InboxBuilder<DB> {
    /// The schema of the tables; without it, the connection's own. MySQL calls it a database; SQLite has none.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.placement = self.placement.schema(schema);
        self
    }

    /// The start of each table's name; `inbox_` by default, for a table `inbox_message`.
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.placement = self.placement.prefix(prefix);
        self
    }

    /// The name of this process in the column `owner`; `process NUMBER` by default. It is for people only.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// How long a claim lasts without a renewal; 30 s by default, 1 s to 1 day.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Builds the inbox. No connection is opened.
    ///
    /// # Errors
    /// [`InboxError::Name`] and [`InboxError::Lease`].
    pub fn build(self) -> Result<Inbox<DB>, InboxError> {
        if !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.lease) {
            return Err(InboxError::Lease { lease: self.lease });
        }
        let tables = self.placement.tables()?;
        Ok(self.made(&tables))
    }

    fn made(&self, tables: &Tables) -> Inbox<DB> {
        let shared = Shared {
            sql: Statements::render::<DB>(tables),
            schema: Schema::new::<DB>(Templates::of::<DB>().migration, tables, SCHEMA_NUMBER),
            owner: self.owner.chars().take(LONGEST_GROUP).collect(),
            lease: self.lease,
            named: DB::may_name(&self.pool),
        };
        Inbox { pool: self.pool.clone(), shared: Arc::new(shared) }
    }
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// An inbox with the default settings, in the table `inbox_message`.
    pub fn new(pool: sqlx::Pool<DB>) -> Self {
        Self::builder(pool).made(&Tables::of("inbox"))
    }

    /// An inbox with settings of its own.
    pub fn builder(pool: sqlx::Pool<DB>) -> InboxBuilder<DB> {
        let owner = format!("process {}", std::process::id());
        InboxBuilder { pool, placement: Placement::of("inbox"), owner, lease: Duration::from_secs(30) }
    }

    /// The pool of this inbox.
    pub fn pool(&self) -> &sqlx::Pool<DB> {
        &self.pool
    }

    /// Opens a transaction that writes.
    pub(crate) async fn begin(&self) -> Result<Lent<DB>, InboxError> {
        let begun = Lent::begin(&self.pool, Templates::of::<DB>().begin).await;
        begun.map_err(InboxError::of::<DB>("begin"))
    }

    /// A connection for statements that need no transaction.
    pub(crate) async fn lend(&self) -> Result<Lent<DB>, sqlx::Error> {
        Lent::from(&self.pool, self.shared.named).await
    }

    /// Runs one statement. Returns the number of rows that it has changed.
    pub(crate) async fn execute(
        &self,
        call: &'static str,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<u64, InboxError> {
        let done = async {
            let mut lent = self.lend().await?;
            let done = DB::execute(lent.conn(), sql, values, self.shared.named).await?;
            lent.commit().await?;
            Ok(done.rows)
        };
        done.await.map_err(InboxError::of::<DB>(call))
    }

    /// Creates the tables if they do not exist. Several processes may call this at once.
    ///
    /// # Errors
    /// The database's, and [`InboxError::Schema`] if a newer build has made the tables.
    pub async fn migrate(&self) -> Result<(), InboxError> {
        self.shared.schema.migrate(&self.pool).await.map_err(InboxError::of::<DB>("migrate"))?;
        self.check().await
    }

    /// Whether the tables are there and of this build's version.
    ///
    /// # Errors
    /// [`InboxError::Schema`], or the database's.
    pub async fn check(&self) -> Result<(), InboxError> {
        let found = self.shared.schema.version(&self.pool).await.map_err(InboxError::of::<DB>("check"))?;
        match found == SCHEMA_VERSION {
            true => Ok(()),
            false => Err(InboxError::Schema { found, needed: SCHEMA_VERSION }),
        }
    }

    /// The statements of [`migrate`](Self::migrate), for a DBA to run by hand. No connection is opened, so a pool of
    /// `connect_lazy` is enough.
    pub fn migration_script(&self) -> String {
        self.shared.schema.script().to_owned()
    }
}
