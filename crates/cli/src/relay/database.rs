//! An outbox on the database of an address.

use std::error::Error;

use async_trait::async_trait;
use keylane::{
    Config, Outbox, Registration, Running, SchemaError, StartError,
    database::{Database, Pool},
    sqlx::{self, AssertSqlSafe, Connection, MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool},
    tokio_util::sync::CancellationToken,
};

/// The calls of a relay to an outbox, the same for each database.
#[async_trait]
pub(crate) trait AnyOutbox: Send + Sync {
    async fn start(&self) -> Result<Running, StartError>;
    async fn check(&self) -> Result<(), SchemaError>;
    async fn publish_handlers(&self) -> Result<(), SchemaError>;
    /// Connects once, without the retries of a pool.
    async fn connect(&self) -> Result<(), sqlx::Error>;
    /// Runs a statement whose rows do not matter.
    async fn try_statement(&self, sql: String) -> Result<(), sqlx::Error>;
    /// The texts in the first column.
    async fn texts(&self, sql: String) -> Result<Vec<String>, sqlx::Error>;
}

/// An outbox that is built, and the way to end its workers.
pub(crate) struct Opened {
    pub(crate) outbox: Box<dyn AnyOutbox>,
    pub(crate) token: CancellationToken,
}

struct On<DB: Database> {
    pool: DB::Pool,
    outbox: Outbox<DB>,
}

impl Opened {
    /// Builds the outbox without a connection.
    pub(crate) async fn new(
        url: &str,
        config: &Config,
        registrations: Vec<Registration>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let token = CancellationToken::new();
        let outbox: Box<dyn AnyOutbox> = match url.split(':').next() {
            Some("postgres" | "postgresql") => {
                Box::new(on(PgPool::connect_lazy(url)?, config, registrations, &token).await?)
            }
            Some("mysql" | "mariadb") => {
                Box::new(on(MySqlPool::connect_lazy(url)?, config, registrations, &token).await?)
            }
            Some("sqlite") => {
                Box::new(on(SqlitePool::connect_lazy(url)?, config, registrations, &token).await?)
            }
            _ => return Err("the database url must begin with postgres://, mysql:// or sqlite://".into()),
        };
        Ok(Self { outbox, token })
    }
}

async fn on<P>(
    pool: P,
    config: &Config,
    registrations: Vec<Registration>,
    token: &CancellationToken,
) -> Result<On<P::Database>, Box<dyn Error + Send + Sync>>
where
    P: Pool + Clone,
    P::Database: Database<Pool = P>,
{
    let builder = Outbox::builder(pool.clone()).config(config.clone()).handlers(registrations);
    Ok(On { pool, outbox: builder.shutdown_on(token.clone()).build().await? })
}

macro_rules! on_each {
    ($($database:ty),*) => {$(
        #[async_trait]
        impl AnyOutbox for On<$database> {
            async fn start(&self) -> Result<Running, StartError> {
                self.outbox.start().await
            }

            async fn check(&self) -> Result<(), SchemaError> {
                self.outbox.check().await
            }

            async fn publish_handlers(&self) -> Result<(), SchemaError> {
                self.outbox.publish_handlers().await
            }

            async fn connect(&self) -> Result<(), sqlx::Error> {
                let options = self.pool.connect_options();
                <$database as sqlx::Database>::Connection::connect_with(&options).await?.close().await
            }

            async fn try_statement(&self, sql: String) -> Result<(), sqlx::Error> {
                sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.map(|_| ())
            }

            async fn texts(&self, sql: String) -> Result<Vec<String>, sqlx::Error> {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&self.pool).await
            }
        }
    )*};
}

on_each! { Postgres, MySql, Sqlite }
