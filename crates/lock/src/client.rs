//! The client and its settings.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use keylane_sql::{Kind, Placement, Schema, Tables, Value};

use crate::{
    database::{LockDatabase, Wake},
    error::LockError,
    guard::LockGuard,
    request::{LockRequest, Owners},
    shared::Shared,
    statements::Statements,
    templates::Templates,
};

/// The version of the schema that this build creates.
const SCHEMA_VERSION: i64 = 1;
/// A number that distinguishes these tables from those of other crates.
const SCHEMA_NUMBER: i64 = 77_316_530_232;
/// The longest list of [`LockClient::queue`].
const LONGEST_LIST: i64 = 1000;
/// Rows per step of a purge: each step is a transaction of its own.
const STEP: u64 = 1000;

/// A client of locks. Clones are cheap and count as the same client.
pub struct LockClient<DB: LockDatabase> {
    pub(crate) shared: Arc<Shared<DB>>,
    pub(crate) owners: Arc<Mutex<Owners<DB>>>,
    pub(crate) timeout: Duration,
}

impl<DB: LockDatabase> Clone for LockClient<DB> {
    fn clone(&self) -> Self {
        let (shared, owners) = (Arc::clone(&self.shared), Arc::clone(&self.owners));
        Self { shared, owners, timeout: self.timeout }
    }
}

impl<DB: LockDatabase> fmt::Debug for LockClient<DB> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LockClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The settings of a client.
#[derive(Debug)]
#[must_use = "call build"]
pub struct LockClientBuilder<DB: LockDatabase> {
    pool: sqlx::Pool<DB>,
    signal_pool: Option<sqlx::Pool<DB>>,
    placement: Placement,
    name: String,
    lease: Duration,
    timeout: Duration,
}

impl<DB: LockDatabase> LockClientBuilder<DB> {
    /// The schema of the tables; without it, the connection's own. MySQL calls it a database; SQLite has none.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.placement = self.placement.schema(schema);
        self
    }

    /// The start of each table's name; `lock_` by default, for tables `lock_resource` and `lock_ticket`.
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.placement = self.placement.prefix(prefix);
        self
    }

    /// The text of the column `owner` for requests without an owner; `process NUMBER` by default. It is for people
    /// only.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long a ticket lasts without a renewal; 30 s by default, 1 s to 1 day. The client renews its tickets three
    /// times as often.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a request without a timeout of its own waits; 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The pool whose address the connections for signals use; the client's own pool by default. Behind a pooler in
    /// transaction mode, give the address of the server itself. The database must be the same.
    pub fn signal_pool(mut self, pool: sqlx::Pool<DB>) -> Self {
        self.signal_pool = Some(pool);
        self
    }

    /// Builds the client. No connection is opened.
    ///
    /// # Errors
    /// [`LockError::Name`] and [`LockError::Lease`].
    pub fn build(self) -> Result<LockClient<DB>, LockError> {
        if !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.lease) {
            return Err(LockError::Lease { lease: self.lease });
        }
        let tables = self.placement.tables()?;
        Ok(self.made(&tables))
    }

    fn made(self, tables: &Tables) -> LockClient<DB> {
        let waiters = Arc::default();
        let direct = self.signal_pool.as_ref().unwrap_or(&self.pool);
        let shared = Shared {
            wake: DB::Wake::new(direct, &self.pool, Arc::clone(&waiters)),
            sql: Statements::render::<DB>(tables),
            schema: Schema::new::<DB>(Templates::of::<DB>().migration, tables, SCHEMA_NUMBER),
            client: uuid::Uuid::now_v7().simple().to_string(),
            name: self.name.chars().take(100).collect(),
            lease: self.lease,
            named: DB::may_name(&self.pool),
            waiters,
            tickets: Default::default(),
            pool: self.pool,
        };
        LockClient { shared: Arc::new(shared), owners: Arc::default(), timeout: self.timeout }
    }
}

/// A ticket in the queue of a resource. The first ticket is that of the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// The fencing token of the ticket.
    pub token: i64,
    /// The owner, or the name of its client.
    pub owner: String,
    /// How many times the owner has entered.
    pub entries: i64,
    /// How long the lease lasts, if it is not renewed.
    pub left: Duration,
}

impl<DB: LockDatabase> LockClient<DB> {
    /// A client with the default settings, in the tables `lock_resource` and `lock_ticket`.
    pub fn new(pool: sqlx::Pool<DB>) -> Self {
        Self::builder(pool).made(&Tables::of("lock"))
    }

    /// A client with settings of its own.
    pub fn builder(pool: sqlx::Pool<DB>) -> LockClientBuilder<DB> {
        let default = Duration::from_secs(30);
        LockClientBuilder {
            pool,
            signal_pool: None,
            placement: Placement::of("lock"),
            name: format!("process {}", std::process::id()),
            lease: default,
            timeout: default,
        }
    }

    /// The pool of this client.
    pub fn pool(&self) -> &sqlx::Pool<DB> {
        &self.shared.pool
    }

    /// Waits for the resource and locks it: `request(resource).lock()`.
    ///
    /// # Errors
    /// As [`LockRequest::lock`].
    ///
    /// # Cancel safety
    /// If it is dropped, the place in the queue is given up in the background.
    pub async fn lock(&self, resource: &str) -> Result<LockGuard<DB>, LockError> {
        self.request(resource).lock().await
    }

    /// A request with an owner or a timeout of its own.
    pub fn request<'a>(&'a self, resource: &'a str) -> LockRequest<'a, DB> {
        LockRequest::new(self, resource, self.timeout)
    }

    /// The holder and the waiters of a resource, in the order of their turns; at most 1,000.
    ///
    /// # Errors
    /// The database's.
    pub async fn queue(&self, resource: &str) -> Result<Vec<Queued>, LockError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Text, Kind::Int, Kind::Int];
        let values = vec![Value::Exact(resource.to_owned()), Value::Int(LONGEST_LIST)];
        let rows = self.shared.rows("queue", &self.shared.sql.places, values, KINDS).await?;
        let queued = rows.into_iter().map(|mut row| Queued {
            token: row.int(0).unwrap_or_default(),
            owner: row.take_text(1),
            entries: row.int(2).unwrap_or_default(),
            left: row.millis(3),
        });
        Ok(queued.collect())
    }

    /// Deletes the rows of resources that were unused for that long, in steps of 1,000, and returns how many. If such
    /// a resource is used again, its tokens are higher than before, unless the database's clock was set back.
    ///
    /// # Errors
    /// The database's. What was deleted by then stays deleted.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn purge(&self, unused_for: Duration) -> Result<u64, LockError> {
        let mut purged = 0;
        loop {
            let values = vec![Value::millis(unused_for), Value::Int(STEP as i64)];
            let step = self.shared.run("purge", &self.shared.sql.purge, values).await?;
            purged += step;
            if step < STEP {
                return Ok(purged);
            }
        }
    }

    /// Creates the tables if they do not exist. Several processes may call this at once.
    ///
    /// # Errors
    /// The database's, and [`LockError::Schema`] if a newer build has made the tables.
    pub async fn migrate(&self) -> Result<(), LockError> {
        let Shared { schema, pool, .. } = &*self.shared;
        schema.migrate(pool).await.map_err(LockError::of::<DB>("migrate"))?;
        self.check().await
    }

    /// Whether the tables are there and of this build's version.
    ///
    /// # Errors
    /// [`LockError::Schema`], or the database's.
    pub async fn check(&self) -> Result<(), LockError> {
        let Shared { schema, pool, .. } = &*self.shared;
        let found = self.shared.limited("check", schema.version(pool)).await?;
        match found == SCHEMA_VERSION {
            true => Ok(()),
            false => Err(LockError::Schema { found, needed: SCHEMA_VERSION }),
        }
    }

    /// The statements of [`migrate`](Self::migrate), for a DBA to run by hand. No connection is opened, so a pool of
    /// `connect_lazy` is enough.
    pub fn migration_script(&self) -> String {
        self.shared.schema.script().to_owned()
    }
}
