//! Keys and answers in the service's own database, so that an answer commits with the effect of its handler.

mod statements;

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use keylane_sql::{Executed, Kind, Lent, Placement, Row, Schema, SqlDatabase, SqlError, Value};
use sqlx_core::transaction::TransactionManager;
use statements::{Statements, migration};

use crate::{
    error::{SettingError, StoreError},
    idempotency::{Answer, Begun, Claim, IdempotencyStore, rules},
};

/// The version of the schema that this build creates.
const SCHEMA_VERSION: i64 = 1;
/// A number that distinguishes these tables from those of other crates.
const SCHEMA_NUMBER: i64 = 77_316_530_233;
/// Rows per step of a purge: each step is a transaction of its own.
const STEP: u64 = 1_000;
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a statement is tried that met a deadlock or a conflict of snapshots.
const ATTEMPTS: u32 = 5;

/// Idempotency keys in tables of the service's database: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or
/// `sqlx::Sqlite`. Clones are cheap.
///
/// With [`finish_in`](Self::finish_in) a handler stores its answer in its own transaction.
pub struct SqlStore<DB: SqlDatabase> {
    pool: sqlx::Pool<DB>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sql: Statements,
    schema: Schema,
    timeout: Duration,
    /// Whether statements may have names on the server.
    named: bool,
}

impl<DB: SqlDatabase> Clone for SqlStore<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlStore<DB> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SqlStore").field("timeout", &self.shared.timeout).finish_non_exhaustive()
    }
}

/// The settings of a [`SqlStore`].
#[derive(Debug)]
#[must_use = "call build"]
pub struct SqlStoreBuilder<DB: SqlDatabase> {
    pool: sqlx::Pool<DB>,
    placement: Placement,
    timeout: Duration,
}

impl<DB: SqlDatabase> SqlStoreBuilder<DB> {
    /// The schema of the tables; without it, the connection's own. MySQL calls it a database; SQLite has none.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.placement = self.placement.schema(schema);
        self
    }

    /// The start of each table's name; `web_` by default, for a table `web_request`.
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.placement = self.placement.prefix(prefix);
        self
    }

    /// How long one call may take, the wait for a connection included; 5 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Builds the store. No connection is opened.
    ///
    /// # Errors
    /// [`SettingError::Tables`].
    pub fn build(self) -> Result<SqlStore<DB>, SettingError> {
        let tables =
            self.placement.tables().map_err(|name| SettingError::Tables { problem: name.to_string() })?;
        let shared = Shared {
            sql: Statements::render::<DB>(&tables),
            schema: Schema::new::<DB>(migration::<DB>(), &tables, SCHEMA_NUMBER),
            timeout: self.timeout,
            named: DB::may_name(&self.pool),
        };
        Ok(SqlStore { pool: self.pool, shared: Arc::new(shared) })
    }
}

impl<DB: SqlDatabase> SqlStore<DB> {
    /// A store in the tables `web_request` and `web_meta`, unless the settings say otherwise.
    pub fn builder(pool: sqlx::Pool<DB>) -> SqlStoreBuilder<DB> {
        SqlStoreBuilder { pool, placement: Placement::of("web"), timeout: CALL_TIMEOUT }
    }

    /// Stores the answer in a transaction of the handler, which sqlx has begun: the effect and the answer commit
    /// together, or neither does. On SQLite begin it with `BEGIN IMMEDIATE`.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn place(
    /// #     store: keylane_web::SqlStore<sqlx::Postgres>,
    /// #     pool: sqlx::PgPool,
    /// #     claim: keylane_web::Claim, // Extension<Claim> of axum
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane_web::{Answer, ResultEnvelope};
    ///
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders …").execute(&mut *tx).await?;
    /// let answer = Answer::json(http::StatusCode::CREATED, &ResultEnvelope::ok("placed"))?;
    /// store.finish_in(&mut tx, &claim, &answer).await?; // with `?`: without it there must be no commit
    /// tx.commit().await?;
    /// let response = answer.response();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Lost`] if the lease has ended and another execution has the key: roll the transaction back.
    /// [`StoreError::NoTransaction`], or the database's own.
    ///
    /// # Cancel safety
    /// As the user's own statements on that connection: roll the transaction back.
    pub async fn finish_in(
        &self,
        conn: &mut DB::Connection,
        claim: &Claim,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        if DB::TransactionManager::get_transaction_depth(conn) == 0 {
            return Err(StoreError::NoTransaction);
        }
        let (sql, values) = (&self.shared.sql.finish, finish(claim, answer));
        match DB::execute(conn, sql, values, self.shared.named).await {
            Ok(Executed { rows: 1, .. }) => Ok(()),
            Ok(_) => Err(StoreError::Lost { key: claim.key.to_string() }),
            Err(error) => Err(of::<DB>("finish")(error)),
        }
    }

    /// Creates the tables if they do not exist. Several processes may call this at once.
    ///
    /// # Errors
    /// The database's, and [`StoreError::Schema`] if a newer build has made the tables.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.shared.schema.migrate(&self.pool).await.map_err(of::<DB>("migrate"))?;
        self.check().await
    }

    /// Whether the tables are there and of this build's version.
    ///
    /// # Errors
    /// [`StoreError::Schema`], or the database's.
    pub async fn check(&self) -> Result<(), StoreError> {
        match self.shared.schema.version(&self.pool).await.map_err(of::<DB>("check"))? {
            SCHEMA_VERSION => Ok(()),
            found => Err(StoreError::Schema { found, needed: SCHEMA_VERSION }),
        }
    }

    /// The statements of [`migrate`](Self::migrate), for a DBA to run by hand. No connection is opened.
    pub fn migration_script(&self) -> String {
        self.shared.schema.script().to_owned()
    }

    /// Deletes answers that were kept for long enough, and claims whose lease has ended, in steps of 1,000. Returns
    /// how many. Without purges the table grows by a row per key.
    ///
    /// # Errors
    /// The database's. What was deleted by then stays deleted.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        let mut purged = 0;
        loop {
            let done = self.execute("purge", &self.shared.sql.purge, vec![Value::Int(STEP as i64)]).await?;
            purged += done.rows;
            if done.rows < STEP {
                return Ok(purged);
            }
        }
    }

    /// Runs a statement in a transaction of its own, and tries again after a conflict with another transaction.
    async fn execute(
        &self,
        call: &'static str,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Executed, StoreError> {
        self.bounded(call, async {
            let mut attempt = 1;
            loop {
                let done = async {
                    let mut lent = Lent::<DB>::from(&self.pool, self.shared.named).await?;
                    let done = DB::execute(lent.conn(), sql, values.clone(), self.shared.named).await?;
                    lent.commit().await.map(|()| done)
                };
                match done.await {
                    Err(sqlx::Error::Database(error)) if DB::is_passing(&*error) && attempt < ATTEMPTS => {
                        attempt += 1;
                    }
                    done => return done,
                }
            }
        })
        .await
    }

    /// The record of a key, if there is one: its token, fingerprint, status and result.
    async fn record(&self, call: &'static str, claim: &Claim) -> Result<Option<Row>, StoreError> {
        const KINDS: &[Kind] = &[Kind::Text; 4];
        let (named, sql) = (self.shared.named, &self.shared.sql.record);
        self.bounded(call, async {
            let mut lent = Lent::<DB>::from(&self.pool, named).await?;
            let rows = DB::query(lent.conn(), sql, place(claim), KINDS, named).await?;
            lent.commit().await?;
            Ok(rows.into_iter().next())
        })
        .await
    }

    async fn bounded<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        let limit = self.shared.timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done.map_err(of::<DB>(call)),
            Err(_) => Err(StoreError::NoAnswer { call, limit }),
        }
    }

    /// Whether a call that has changed no record was carried out before: the record is this claim's and done.
    /// `nobodys` is the answer if there is no record.
    async fn is_settled(&self, call: &'static str, claim: &Claim, nobodys: bool) -> Result<bool, StoreError> {
        let record = self.record(call, claim).await?;
        Ok(record
            .map_or(nobodys, |record| record.text(0) == &*claim.token && record.text(2) == rules::SUCCESS))
    }
}

fn of<DB: SqlDatabase>(call: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| StoreError::Store { call, source: SqlError::of::<DB>(error).into() }
}

/// The values that name the record of a key.
fn place(claim: &Claim) -> Vec<Value> {
    vec![Value::Exact(claim.key.to_string()), Value::Exact(claim.scope.to_string())]
}

/// The values that name the record of this claim, while the claim has it.
fn own(claim: &Claim) -> impl Iterator<Item = Value> {
    place(claim).into_iter().chain([Value::Text(claim.token.to_string())])
}

fn finish(claim: &Claim, answer: &Answer) -> Vec<Value> {
    [Value::Text(answer.to_text()), Value::millis(claim.keep)].into_iter().chain(own(claim)).collect()
}

impl<DB: SqlDatabase> IdempotencyStore for SqlStore<DB> {
    fn begin<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Begun, StoreError>> {
        async move {
            let values = vec![
                Value::Exact(claim.scope.to_string()),
                Value::Exact(claim.key.to_string()),
                Value::Text(claim.token.to_string()),
                Value::Text(claim.fingerprint.to_string()),
                Value::Text(claim.trace_id.as_deref().unwrap_or_default().to_owned()),
                Value::millis(claim.lease),
            ];
            self.execute("begin", &self.shared.sql.claim, values).await?;
            // The key was freed since: a repeat of the request finds it free.
            let Some(record) = self.record("begin", claim).await? else { return Ok(Begun::InProgress) };
            if record.text(0) == &*claim.token {
                return Ok(Begun::Execute);
            }
            let (is_same, status) = (record.text(1) == &*claim.fingerprint, record.text(2));
            let begun = rules::begun(status, is_same, record.text(3));
            begun.ok_or_else(|| StoreError::Answer { call: "begin", problem: format!("status {status:?}") })
        }
        .boxed()
    }

    fn finish<'a>(&'a self, claim: &'a Claim, answer: &'a Answer) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let done = self.execute("finish", &self.shared.sql.finish, finish(claim, answer)).await?;
            Ok(done.rows == 1 || self.is_settled("finish", claim, false).await?)
        }
        .boxed()
    }

    fn free<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let done = self.execute("free", &self.shared.sql.free, own(claim).collect()).await?;
            Ok(done.rows == 1 || self.is_settled("free", claim, true).await?)
        }
        .boxed()
    }
}
