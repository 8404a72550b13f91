//! Locks with tables of their own.

use std::time::Duration;

use keylane_lock::LockClient;
use keylane_sql::SqlDatabase;

use crate::target::{self, Target};

/// The lease of most cases, which wait for the end of some.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// What a busy machine may add to the end of a lease.
pub(crate) const DELAY: Duration = Duration::from_secs(3);
/// The lease of a case that waits for several renewals: a busy machine may keep a process waiting for two seconds.
pub(crate) const RENEWED: Duration = Duration::from_secs(5);
/// A lease that does not end within a case, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A client, and a table that holders write to.
pub(crate) struct Stage<T: Target> {
    pub(crate) locks: LockClient<T::Db>,
    pub(crate) prefix: String,
    level: String,
    lease: Duration,
}

impl<T: Target> Stage<T> {
    pub(crate) async fn new() -> Option<Self> {
        Self::with("READ COMMITTED", LEASE).await
    }

    pub(crate) async fn with(level: &str, lease: Duration) -> Option<Self> {
        let stage = Self::at(target::prefix("tl"), level, lease).await?;
        stage.locks.migrate().await.unwrap();
        stage
            .execute("CREATE TABLE {}register (name VARCHAR(20) PRIMARY KEY, value BIGINT, fence BIGINT)")
            .await;
        Some(stage)
    }

    /// Another client of the same tables, as another process has it.
    pub(crate) async fn at(prefix: String, level: &str, lease: Duration) -> Option<Self> {
        let pool = T::open(&prefix, level).await?;
        let locks = LockClient::builder(pool).table_prefix(prefix.as_str()).lease(lease).build().unwrap();
        Some(Self { locks, prefix, level: level.to_owned(), lease })
    }

    pub(crate) async fn other(&self) -> Self {
        Self::at(self.prefix.clone(), &self.level, self.lease).await.unwrap()
    }

    /// The number that this reads, where `{}` is the prefix.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        target::number(self.locks.pool(), &self.prefix, sql).await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap();
    }

    pub(crate) async fn try_execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        target::execute(self.locks.pool(), &self.prefix, sql).await
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self) -> sqlx::Transaction<'static, T::Db> {
        self.locks.pool().begin_with(T::Db::DIALECT.begin).await.unwrap()
    }

    /// Returns when so many stand in the queue, the holder among them.
    pub(crate) async fn queued(&self, resource: &str, wanted: usize) {
        let stands = async {
            while self.locks.queue(resource).await.unwrap().len() != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let stood = tokio::time::timeout(LEASE * 10, stands).await;
        assert!(stood.is_ok(), "{:?}", self.locks.queue(resource).await);
    }

    pub(crate) async fn end(self) {
        target::end(self.locks.pool(), &self.prefix, &["register", "ticket", "resource", "meta"]).await;
    }
}
