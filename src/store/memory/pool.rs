//! The user's side: the pool.

use std::sync::Arc;

use super::{
    client::{Client, Conditions},
    connection::MemoryConnection,
    faults::Fault,
    outbox::Outbox,
    state::{Data, Shared},
    transaction::MemoryTransaction,
};
use crate::store::StoreError;

/// The database in memory as a [`Database`](crate::database::Database).
#[derive(Clone, Copy, Debug)]
pub enum Memory {}

/// The pool of a database in memory. All clones share one set of tables.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    pub(super) client: Client,
}

/// A past state of the database, to which a failover can go back.
#[derive(Clone, Debug)]
pub struct Moment(Data);

impl MemoryPool {
    /// A pool with its own empty tables.
    pub fn new() -> Self {
        Self { client: Client::new(Arc::new(Shared::new()), None) }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Only a fault that [`fail_next`](Self::fail_next) asked for.
    pub async fn begin(&self) -> Result<MemoryTransaction, StoreError> {
        let begun = self
            .client
            .call("begin", |data, _| MemoryTransaction::on(MemoryConnection::begin_on(&self.client, data)));
        begun.await
    }

    /// The effects of all committed transactions, in the order of the commits.
    pub fn effects(&self) -> Vec<String> {
        self.client.shared.data().effects.clone()
    }

    /// Makes the next `times` calls of this name fail as on a broken connection. The names are those in
    /// [`StoreError::call`]: `begin`, `commit`, `fetch`, `due`, `settle`, `resolve`, `beat`, `view` …
    pub fn fail_next(&self, call: &str, times: usize, fault: Fault) {
        self.client.shared.faults.add(call, times, fault);
    }

    /// The same tables for a client under these conditions.
    #[doc(hidden)]
    #[must_use]
    pub fn under(&self, conditions: Arc<dyn Conditions>) -> Self {
        let mut data = self.client.shared.data();
        data.journaled = true;
        data.outboxes.values_mut().for_each(Outbox::open_journal);
        Self { client: Client::new(Arc::clone(&self.client.shared), Some(conditions)) }
    }

    /// Uses up so many ids between two ids, as transactions do that are rolled back.
    #[doc(hidden)]
    pub fn use_up_between(&self, ids: i64) {
        let mut data = self.client.shared.data();
        data.ids_between = ids;
        data.outboxes.values_mut().for_each(|outbox| outbox.use_up_between(ids));
    }

    /// The database as it is now.
    #[doc(hidden)]
    pub fn moment(&self) -> Moment {
        Moment(self.client.shared.data().clone())
    }

    /// Replaces the server by one that has lost all commits after that moment. If `ids_again` is not set, the
    /// ids drawn since stay used up.
    #[doc(hidden)]
    pub fn fail_over(&self, moment: Moment, ids_again: bool) {
        let mut data = self.client.shared.data();
        let server = data.server + 1;
        let before = std::mem::replace(&mut *data, moment.0);
        data.server = server;
        for (tables, outbox) in &mut data.outboxes {
            outbox.fail_over(server, before.outboxes.get(tables).filter(|_| !ids_again));
        }
    }
}

impl Default for MemoryPool {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::{
        database::Database,
        instance::InstanceId,
        partition::{Partition, PartitionSet},
        record::{Change, Due, NewRecord, Settlement},
        rules::horizon::Server,
        store::{ErrorClass, FenceRow, NewInstance, Pick, Resolution, Store, StoreSettings, Tables},
    };

    fn store(pool: &MemoryPool) -> Arc<dyn Store> {
        let settings = StoreSettings { call_timeout: Duration::from_secs(1), ..StoreSettings::default() };
        Memory::open(pool, settings).unwrap()
    }

    async fn schedule(pool: &MemoryPool, due: Due) -> Result<(), StoreError> {
        let record = NewRecord {
            event_id: Uuid::now_v7(),
            partition: Partition::of("order-1"),
            key: "order-1".to_owned(),
            handler: "bookkeeper".into(),
            record_type: "order.placed".into(),
            content_type: "application/json".into(),
            payload: Vec::new(),
            headers: Default::default(),
            due,
            deadline: None,
            dedup_key: None,
        };
        let mut tx = pool.begin().await?;
        Memory::insert(&mut tx, &Tables::default(), &[record]).await?;
        tx.commit().await
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_delay_takes_no_time() {
        let pool = MemoryPool::new();
        let store = store(&pool);
        let hour = Duration::from_secs(3600);
        schedule(&pool, Due::After(hour)).await.unwrap();
        schedule(&pool, Due::At(std::time::SystemTime::now() + 2 * hour)).await.unwrap();
        for due in [0, 1, 2] {
            assert_eq!(store.fetch_due(PartitionSet::ALL, Pick::new(&[], 10)).await.unwrap().0.len(), due);
            tokio::time::sleep(hour + Duration::from_secs(60)).await;
        }
    }

    #[tokio::test]
    async fn a_settle_fails_before_or_after_it_is_written() {
        let pool = MemoryPool::new();
        let store = store(&pool);
        let instance = InstanceId::generate();
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: instance, name, version, fence_rows: 1 }).await.unwrap();
        let mut fence = FenceRow::of_settler(instance, Server::default());
        let fates =
            [(Fault::NotApplied, Resolution::NotApplied, 1), (Fault::LostReply, Resolution::Applied, 0)];
        for (fault, resolution, left) in fates {
            schedule(&pool, Due::Now).await.unwrap();
            let partitions = [Partition::of("order-1")];
            let id = store.fetch_by_partition(&partitions, Pick::new(&[], 10)).await.unwrap()[0].delivery.id;
            pool.fail_next("settle", 1, fault);
            let settlement = Settlement { id, failures: 0, change: Change::Complete };
            assert!(store.settle(fence, std::slice::from_ref(&settlement)).await.is_err());
            assert_eq!(store.resolve(fence).await.unwrap(), resolution);
            assert_eq!(store.fetch_by_partition(&partitions, Pick::new(&[], 10)).await.unwrap().len(), left);
            fence = fence.invalidated();
            drop(store.settle(fence, &[settlement]).await);
            fence = fence.moved();
        }
    }

    #[tokio::test]
    async fn a_commit_fails_before_or_after_it_is_done() {
        let pool = MemoryPool::new();
        for (fault, effects) in [(Fault::NotApplied, 0), (Fault::LostReply, 1)] {
            pool.fail_next("commit", 1, fault);
            let mut tx = pool.begin().await.unwrap();
            tx.push_effect("booked");
            assert_eq!(tx.commit().await.unwrap_err().class, ErrorClass::Reconnect);
            assert_eq!(pool.effects().len(), effects);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_for_a_key_is_told_to_try_again() {
        let pool = MemoryPool::new();
        let (mut one, mut other) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
        Memory::lock_keys(&mut one, &Tables::default(), &["order-1"]).await.unwrap();
        let refused = Memory::lock_keys(&mut other, &Tables::default(), &["order-1"]).await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Retry);
        one.rollback().await.unwrap();
        Memory::lock_keys(&mut other, &Tables::default(), &["order-1"]).await.unwrap();
    }
}
