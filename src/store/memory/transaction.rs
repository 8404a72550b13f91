//! The transactions of the user, and their savepoints.

use std::ops::{Deref, DerefMut};

use super::{connection::MemoryConnection, state::Data};
use crate::store::{ErrorClass, StoreError};

/// A transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct MemoryTransaction(MemoryConnection);

/// A savepoint, which is sqlx's transaction within a transaction. Dropping it rolls back to it.
#[derive(Debug)]
pub struct MemorySavepoint<'a> {
    conn: &'a mut MemoryConnection,
    ended: bool,
}

impl MemoryConnection {
    /// Sets a savepoint.
    ///
    /// # Errors
    /// None. The signature is sqlx's, so that a test can change its database.
    pub async fn begin(&mut self) -> Result<MemorySavepoint<'_>, StoreError> {
        self.set_savepoint();
        Ok(MemorySavepoint { conn: self, ended: false })
    }
}

impl MemorySavepoint<'_> {
    /// Keeps the writes since the savepoint as a part of the transaction.
    ///
    /// # Errors
    /// None. The signature is sqlx's.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        self.ended = true;
        self.conn.release_savepoint();
        Ok(())
    }

    /// Discards the writes since the savepoint.
    ///
    /// # Errors
    /// None. The signature is sqlx's.
    pub async fn rollback(self) -> Result<(), StoreError> {
        drop(self);
        Ok(())
    }
}

impl Drop for MemorySavepoint<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.conn.roll_back_to_savepoint();
        }
    }
}

impl MemoryTransaction {
    pub(super) fn on(conn: MemoryConnection) -> Self {
        Self(conn)
    }

    /// Makes all writes of the transaction visible.
    ///
    /// # Errors
    /// A fault that [`MemoryPool::fail_next`](super::MemoryPool::fail_next) asked for, or a savepoint that
    /// was left open.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        if self.has_savepoint() {
            let open = "the work has left a savepoint open; commit it or roll it back";
            return Err(StoreError::new("commit", ErrorClass::Setup, open));
        }
        let client = self.client.clone();
        client.call("commit", |data, _| self.write(data)).await?
    }

    /// Discards all writes of the transaction.
    ///
    /// # Errors
    /// None. The signature is sqlx's, so that a test can change its database.
    pub async fn rollback(self) -> Result<(), StoreError> {
        drop(self);
        Ok(())
    }

    pub(super) fn write(&mut self, data: &mut Data) -> Result<(), StoreError> {
        self.0.write(data)
    }
}

impl Deref for MemoryTransaction {
    type Target = MemoryConnection;

    fn deref(&self) -> &MemoryConnection {
        &self.0
    }
}

impl DerefMut for MemoryTransaction {
    fn deref_mut(&mut self) -> &mut MemoryConnection {
        &mut self.0
    }
}

impl Deref for MemorySavepoint<'_> {
    type Target = MemoryConnection;

    fn deref(&self) -> &MemoryConnection {
        self.conn
    }
}

impl DerefMut for MemorySavepoint<'_> {
    fn deref_mut(&mut self) -> &mut MemoryConnection {
        self.conn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        database::Database,
        memory::{Memory, MemoryPool},
        partition::Partition,
        record::{Cancel, Due, Named, NewRecord},
        store::Tables,
    };

    fn in_an_hour() -> (NewRecord, Cancel) {
        let (partition, key) = (Partition::of("order-1"), "order-1".to_owned());
        let record = NewRecord {
            event_id: uuid::Uuid::from_u128(7),
            partition,
            key: key.clone(),
            handler: "bookkeeper".into(),
            record_type: "order.placed".into(),
            content_type: "application/json".into(),
            payload: Vec::new(),
            headers: Default::default(),
            due: Due::After(Duration::from_secs(3600)),
            deadline: None,
            dedup_key: Some("placed-1".to_owned()),
        };
        let named = Named::Event(record.event_id);
        (record, Cancel { partition, key, named })
    }

    #[tokio::test]
    async fn a_transaction_of_a_server_that_has_given_way_cancels_and_inserts_nothing() {
        let (pool, tables) = (MemoryPool::new(), Tables::default());
        let (record, cancel) = in_an_hour();
        let mut tx = pool.begin().await.unwrap();
        Memory::insert(&mut tx, &tables, &[record]).await.unwrap();
        tx.commit().await.unwrap();
        let mut former = pool.begin().await.unwrap();
        pool.fail_over(pool.moment(), false);
        Memory::cancel(&mut former, &tables, &cancel).await.unwrap_err();
        Memory::insert_dedup_key(&mut former, &tables, "placed-1").await.unwrap_err();
        Memory::lock_keys(&mut former, &tables, &["order-1"]).await.unwrap_err();
        drop(former);
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(Memory::cancel(&mut tx, &tables, &cancel).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_cancel_that_is_rolled_back_to_a_savepoint_can_be_made_again() {
        let (pool, tables) = (MemoryPool::new(), Tables::default());
        let (record, cancel) = in_an_hour();
        let mut tx = pool.begin().await.unwrap();
        assert!(Memory::insert_dedup_key(&mut tx, &tables, "placed-1").await.unwrap());
        Memory::insert(&mut tx, &tables, &[record]).await.unwrap();
        // Cancels records of this transaction, then committed ones.
        for own in [true, false] {
            for last in [false, true] {
                let mut within = tx.begin().await.unwrap();
                assert_eq!(Memory::cancel(&mut within, &tables, &cancel).await.unwrap(), 1);
                assert!(Memory::insert_dedup_key(&mut within, &tables, "placed-1").await.unwrap());
                match last && !own {
                    true => within.commit().await.unwrap(),
                    false => within.rollback().await.unwrap(),
                }
            }
            if own {
                assert!(!Memory::insert_dedup_key(&mut tx, &tables, "placed-1").await.unwrap());
                tx.commit().await.unwrap();
                tx = pool.begin().await.unwrap();
            }
        }
        tx.commit().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(Memory::cancel(&mut tx, &tables, &cancel).await.unwrap(), 0, "it is gone");
        assert!(!Memory::insert_dedup_key(&mut tx, &tables, "placed-1").await.unwrap(), "inserted again");
    }
}
