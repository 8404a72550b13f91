//! The database in memory as a [`Database`].

use std::sync::Arc;

use super::{
    Memory, MemoryConnection, MemoryPool, MemoryTransaction, store::MemoryStore,
    transactional::MemoryTransactional,
};
use crate::{
    database::{Database, HasDatabase, Pool, sealed::Sealed},
    handler::{BoxFuture, TransactionalBatchCall},
    record::{Cancel, NewRecord},
    store::{OpenError, Store, StoreError, StoreSettings, Tables, TransactionalRun},
};

impl Sealed for Memory {}
impl Sealed for MemoryPool {}
impl Sealed for MemoryConnection {}

impl Pool for MemoryPool {
    type Database = Memory;
}

impl HasDatabase for MemoryConnection {
    type Database = Memory;
}

impl Database for Memory {
    const NAME: &'static str = "memory";
    type Pool = MemoryPool;
    type Connection = MemoryConnection;
    type Transaction = MemoryTransaction;
    type Producer = Tables;

    fn producer(tables: &Tables) -> Tables {
        tables.clone()
    }

    fn begin(pool: &MemoryPool) -> BoxFuture<'_, Result<MemoryTransaction, StoreError>> {
        Box::pin(pool.begin())
    }

    fn commit(tx: MemoryTransaction) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(tx.commit())
    }

    fn insert<'a>(
        conn: &'a mut MemoryConnection,
        tables: &'a Tables,
        records: &'a [NewRecord],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { conn.insert(tables, records) })
    }

    fn insert_dedup_key<'a>(
        conn: &'a mut MemoryConnection,
        tables: &'a Tables,
        dedup_key: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(conn.insert_dedup_key(tables, dedup_key))
    }

    fn lock_keys<'a>(
        conn: &'a mut MemoryConnection,
        tables: &'a Tables,
        keys: &'a [&'a str],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(conn.lock_keys(tables, keys))
    }

    fn cancel<'a>(
        conn: &'a mut MemoryConnection,
        tables: &'a Tables,
        cancel: &'a Cancel,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(conn.cancel(tables, cancel))
    }

    fn open(pool: &MemoryPool, settings: StoreSettings) -> Result<Arc<dyn Store>, OpenError> {
        Ok(Arc::new(MemoryStore::new(pool.client.clone(), settings)))
    }

    fn transactional(
        pool: &MemoryPool,
        settings: &StoreSettings,
        call: Arc<dyn TransactionalBatchCall<Self>>,
    ) -> Arc<dyn TransactionalRun> {
        Arc::new(MemoryTransactional { pool: pool.clone(), settings: settings.clone(), call })
    }
}
