//! The database seam on the side of the user: pools, connections and transactions.

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

/// A database that can hold an outbox: `sqlx::Postgres`, `sqlx::MySql`, `sqlx::Sqlite` or
/// [`Memory`](crate::memory::Memory). Sealed.
pub trait Database: sealed::Sealed + Send + Sync + Sized + 'static {
    /// The name of the database in messages.
    const NAME: &'static str;
    /// The pool that the builder takes.
    type Pool: Pool<Database = Self> + Clone + Send + Sync + 'static;
    /// The connection that [`schedule`](crate::Outbox::schedule) takes. `&mut` of a transaction of the pool
    /// coerces to it.
    type Connection: Send + 'static;
    /// A transaction of the pool.
    type Transaction: DerefMut<Target = Self::Connection> + Send;
    /// What the calls on the user's connection know of the outbox.
    #[doc(hidden)]
    type Producer: Send + Sync + 'static;

    /// Makes the producer's side of an outbox, once per outbox.
    #[doc(hidden)]
    fn producer(tables: &Tables) -> Self::Producer;

    /// Begins a transaction for [`transaction`](crate::Outbox::transaction).
    #[doc(hidden)]
    fn begin(pool: &Self::Pool) -> BoxFuture<'_, Result<Self::Transaction, StoreError>>;

    /// Commits the transaction.
    #[doc(hidden)]
    fn commit(tx: Self::Transaction) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Whether the connection has an open transaction. The answer costs nothing for a transaction of sqlx,
    /// else a round trip.
    #[doc(hidden)]
    fn in_transaction(_: &mut Self::Connection) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async { Ok(true) })
    }

    /// Inserts records on the user's connection, in the given order.
    #[doc(hidden)]
    fn insert<'a>(
        conn: &'a mut Self::Connection,
        producer: &'a Self::Producer,
        records: &'a [NewRecord],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Inserts a dedup key on the user's connection. Returns false if the key exists.
    #[doc(hidden)]
    fn insert_dedup_key<'a>(
        conn: &'a mut Self::Connection,
        producer: &'a Self::Producer,
        dedup_key: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Takes the locks of the strict order level for these keys, which are sorted and distinct.
    #[doc(hidden)]
    fn lock_keys<'a>(
        conn: &'a mut Self::Connection,
        producer: &'a Self::Producer,
        keys: &'a [&'a str],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Cancels records that are not due yet, on the user's connection. Returns their number.
    #[doc(hidden)]
    fn cancel<'a>(
        conn: &'a mut Self::Connection,
        producer: &'a Self::Producer,
        cancel: &'a Cancel,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// The largest size of the pool, or `None` if it has none.
    #[doc(hidden)]
    fn pool_size(_: &Self::Pool) -> Option<u32> {
        None
    }

    /// Whether the server may keep named statements of the pool's connections.
    #[doc(hidden)]
    fn names_statements(_: &Self::Pool) -> bool {
        true
    }

    /// Creates the store of the workers. Opens no connection.
    #[doc(hidden)]
    fn open(pool: &Self::Pool, settings: StoreSettings) -> Result<Arc<dyn Store>, OpenError>;

    /// Converts the call of a transactional handler to its form for this database.
    #[doc(hidden)]
    fn transactional(
        pool: &Self::Pool,
        settings: &StoreSettings,
        call: Arc<dyn TransactionalBatchCall<Self>>,
    ) -> Arc<dyn TransactionalRun>;
}

/// A database with SQL: all but [`Memory`](crate::memory::Memory).
pub trait SqlDatabase: Database {
    /// The statements that schedule one event.
    #[doc(hidden)]
    fn statements(
        producer: &Self::Producer,
        records: &[NewRecord],
        dedup_key: Option<&str>,
        strict: bool,
    ) -> Result<Vec<Statement>, StoreError>;
}

/// A pool whose type names its database, so that `Outbox::builder(pool)` needs no annotation.
pub trait Pool: sealed::Sealed {
    /// The database of the pool.
    type Database: Database<Pool = Self>;
}

/// A connection whose type names its database, so that a transactional handler only names its connection.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection of an outbox database",
    note = "take a connection such as `&mut sqlx::PgConnection`, `&mut sqlx::MySqlConnection` or `&mut sqlx::SqliteConnection`"
)]
pub trait HasDatabase: sealed::Sealed {
    /// The database of the connection.
    type Database: Database<Connection = Self>;
}
