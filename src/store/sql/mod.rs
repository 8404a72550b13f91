//! The store over sqlx: PostgreSQL, MySQL and MariaDB, SQLite.
//!
//! A database is one [`Driver`](driver::Driver). Each statement is a file in `statements/`, with tokens for
//! the differences between databases ([`dialect`]) and for the values of each call ([`statements`]).

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;

use self::{
    call::within,
    driver::{Driver, Role, Session},
    link::Link,
    patience::Patience,
    proof::Proof,
    ranges::AtOnce,
    statements::Statements,
};
use super::{HomeServer, Notifier, Store, StoreError, StoreSettings};
use crate::rules::horizon::Server;

mod admin;
#[cfg(feature = "postgres")]
mod arrays;
#[cfg(feature = "postgres")]
mod binary;
mod call;
mod cancel;
mod cause;
mod claims;
mod cluster;
mod connecting;
mod dead_letters;
mod decode;
pub(crate) mod dialect;
pub(crate) mod driver;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod engine;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod fetches;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod files;
pub(crate) mod glue;
mod grants;
mod insert;
mod link;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod notifier;
#[cfg(feature = "postgres")]
mod numbers;
mod overview;
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
mod producer;
mod proof;
mod purge;
mod ranges;
mod records;
mod release;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod rows;
mod schema;
#[cfg(feature = "postgres")]
mod sessions;
mod settle;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod statements;
mod transactional;
pub(crate) mod work;

#[cfg(feature = "mysql")]
pub use mysql::class_of_number;
#[cfg(feature = "postgres")]
pub use postgres::class_of_state;
#[cfg(feature = "sqlite")]
pub use sqlite::class_of_code;

pub(crate) use call::store_error;
pub(crate) use insert::Producer;
pub(crate) use producer::{insert, insert_dedup_key, statements_of};
pub(crate) use transactional::SqlTransactional;

/// A store on one sqlx database, over separate connections.
pub(crate) struct SqlStore<D: Driver> {
    settings: StoreSettings,
    sql: Arc<Statements>,
    /// Writes completions, where one statement can.
    at_once: Option<AtOnce>,
    pool: D::Pool,
    poll: Link<D>,
    settle: Link<D>,
    /// Claims records, in claimed mode only. Where there is one writer, it settles them too.
    claims: Link<D>,
    control: Link<D>,
    /// Reads the list of handlers in a process that only schedules.
    plain: Link<D>,
    /// The time given to the reads of fetches.
    patience: Patience,
    proof: Proof,
    /// The server that the store is bound to, if any. Never changes.
    home: Option<HomeServer>,
}

impl<D: Driver> SqlStore<D> {
    pub(crate) fn new(pool: D::Pool, settings: StoreSettings) -> Self {
        let sql = Arc::new(Statements::render(&D::DIALECT, D::FAMILY, &settings.tables));
        Self::over(pool, settings, sql, Proof::default(), None)
    }

    fn over(
        pool: D::Pool,
        settings: StoreSettings,
        sql: Arc<Statements>,
        proof: Proof,
        home: Option<HomeServer>,
    ) -> Self {
        let link = |role, async_commit| {
            let session = Session { role, timeout: settings.call_timeout, async_commit };
            Link::new(pool.clone(), session, Arc::clone(&settings.on_connect), proof.clone(), home.clone())
        };
        Self {
            poll: link(Role::Poll, false),
            settle: link(Role::Settle, settings.async_settle),
            claims: link(Role::Claim, settings.async_settle),
            control: link(Role::Control, false),
            plain: link(Role::Plain, false),
            patience: Patience::default(),
            at_once: sql.settle_at_once(settings.completed).map(AtOnce::new),
            settings,
            sql,
            pool,
            proof,
            home,
        }
    }

    /// Another store on the same database, with separate connections.
    fn beside(&self, home: Option<HomeServer>) -> Arc<dyn Store> {
        let (pool, sql) = (self.pool.clone(), Arc::clone(&self.sql));
        Arc::new(Self::over(pool, self.settings.clone(), sql, self.proof.clone(), home))
    }

    /// The only way to the database: runs `work` within the time limit. `work` borrows a connection from a
    /// [`Link`] and keeps it at its end. If `work` fails, is cut off or is dropped, the connection is closed
    /// and never used again.
    async fn call<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        within::<D, T>(name, self.settings.call_timeout, work).await
    }

    /// Runs a read of a fetch as [`call`](Self::call) does, on the fetch connection. Walking over dead rows
    /// of the table may take longer than the time limit, at each attempt. A read without a reply in time is
    /// therefore given more time at the next attempt.
    async fn read_patiently<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        self.patience.read(name, &self.poll, self.settings.call_timeout, work).await
    }
}

#[async_trait]
impl<D: Driver> Store for SqlStore<D> {
    fn own_thread(&self) -> bool {
        true
    }

    fn for_heartbeat(&self) -> Arc<dyn Store> {
        self.beside(self.home.clone())
    }

    fn bound_to(&self, server: Server) -> Arc<dyn Store> {
        self.beside(Some(HomeServer::new(server)))
    }

    async fn server_changed(&self) {
        match &self.home {
            Some(home) => home.changed().await,
            None => std::future::pending().await,
        }
    }

    fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        let by_range = self.at_once.as_ref().map(|at_once| ("settle_by_range", Arc::clone(at_once.of(true))));
        self.sql.named().into_iter().chain(by_range).collect()
    }

    async fn close_idle(&self, unused_for: Duration) {
        for link in [&self.poll, &self.settle, &self.claims, &self.control, &self.plain] {
            within::<D, _>("close", self.settings.call_timeout, async {
                link.close_idle(unused_for).await;
                Ok(())
            })
            .await
            .unwrap_or_default();
        }
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        D::notifier(&self.pool, &self.settings)
    }
}
