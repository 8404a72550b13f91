//! The database seam on the user's side: pools, connections and transactions.

use std::{ops::DerefMut, sync::Arc};

use crate::{
    handler::{BoxFuture, TransactionalBatchCall},
    record::{Cancel, NewRecord},
    statement::Statement,
    store::{Store, StoreError, StoreSettings, Tables, TransactionalRun},
};

pub use crate::store::{BadName, ErrorClass, OpenError};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A database that an outbox can live in: `sqlx::Postgres`, `sqlx::MySql`, `sqlx::Sqlite` or
/// [`Memory`](crate::memory::Memory). Sealed.
pub trait Database: sealed::Sealed + Send + Sync + Sized + 'static {
    /// Its name in messages.
    const NAME: &'static str;
    /// What the builder is given.
    type Pool: Pool<Database = Self> + Clone + Send + Sync + 'static;
    /// What [`schedule`](crate::Outbox::schedule) is given; `&mut` of a transaction of the pool
    /// coerces to `&mut` of it.
    type Connection: Send + 'static;
    /// A transaction of the pool.
    type Transaction: DerefMut<Target = Self::Connection> + Send;

    /// Begins a transaction for [`transaction`](crate::Outbox::transaction).
    #[doc(hidden)]
    fn begin(pool: &Self::Pool) -> BoxFuture<'_, Result<Self::Transaction, StoreError>>;

    /// Commits it.
    #[doc(hidden)]
    fn commit(tx: Self::Transaction) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Whether the connection is in a transaction. One that sqlx has begun costs nothing; any other costs a
    /// round trip.
    #[doc(hidden)]
    fn in_transaction(_: &mut Self::Connection) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async { Ok(true) })
    }

    /// Inserts records on the user's connection, in the order given.
    #[doc(hidden)]
    fn insert<'a>(
        conn: &'a mut Self::Connection,
        tables: &'a Tables,
        records: &'a [NewRecord],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Notes a dedup key on the user's connection; false if it was there already.
    #[doc(hidden)]
    fn note_dedup_key<'a>(
        conn: &'a mut Self::Connection,
        tables: &'a Tables,
        dedup_key: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Takes the locks of the strict order level for these keys, sorted and distinct.
    #[doc(hidden)]
    fn lock_keys<'a>(
        conn: &'a mut Self::Connection,
        tables: &'a Tables,
        keys: &'a [&'a str],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Takes back records that are not due yet, on the user's connection; how many.
    #[doc(hidden)]
    fn cancel<'a>(
        conn: &'a mut Self::Connection,
        tables: &'a Tables,
        cancel: &'a Cancel,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// The largest size of the pool, if it has one.
    #[doc(hidden)]
    fn pool_size(_: &Self::Pool) -> Option<u32> {
        None
    }

    /// Whether statements on connections of the pool may have names on the server.
    #[doc(hidden)]
    fn names_statements(_: &Self::Pool) -> bool {
        true
    }

    /// Opens the store of the workers. Opens no connection yet.
    #[doc(hidden)]
    fn open(pool: &Self::Pool, settings: StoreSettings) -> Result<Arc<dyn Store>, OpenError>;

    /// Prepares a transactional handler.
    #[doc(hidden)]
    fn transactional(
        pool: &Self::Pool,
        settings: &StoreSettings,
        call: Arc<dyn TransactionalBatchCall<Self>>,
    ) -> Arc<dyn TransactionalRun>;
}

/// A database that is spoken to in SQL: all but [`Memory`](crate::memory::Memory).
pub trait SqlDatabase: Database {
    /// The statements of the records of one event.
    #[doc(hidden)]
    fn statements(
        tables: &Tables,
        records: &[NewRecord],
        dedup_key: Option<&str>,
        strict: bool,
    ) -> Result<Vec<Statement>, StoreError>;
}

/// A pool that says which database it is of, so that `Outbox::builder(pool)` needs no annotation.
pub trait Pool: sealed::Sealed {
    /// The database of the pool.
    type Database: Database<Pool = Self>;
}

/// A connection that says which database it is to, so that a transactional handler needs only
/// name the connection it takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection of an outbox database",
    note = "take a connection such as `&mut sqlx::PgConnection`, `&mut sqlx::MySqlConnection` or `&mut sqlx::SqliteConnection`"
)]
pub trait HasDatabase: sealed::Sealed {
    /// The database of the connection.
    type Database: Database<Connection = Self>;
}
