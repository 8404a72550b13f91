//! The user's side: pool, connection and transaction.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use tokio::time::Instant;

use super::{
    Data, Fault, Shared,
    client::{Client, Conditions, failed_over},
    locks::{Held, Lock},
    rows::Row,
};
use crate::{
    record::{Deadline, Due, NewRecord, RecordId, Status},
    store::{ErrorClass, StoreError, Tables},
};

/// The database in memory, as [`Database`](crate::Database) names it.
#[derive(Clone, Copy, Debug)]
pub enum Memory {}

/// Stands where a database pool would. All clones share one set of tables.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    pub(super) client: Client,
}

/// The database as it was: where a failover can go back to.
#[derive(Clone, Debug)]
pub struct Moment(Data);

/// The connection of a transaction: what is written on it appears at the commit.
#[derive(Debug)]
pub struct MemoryConnection {
    pub(super) client: Client,
    /// The server that it began on.
    server: i64,
    pub(super) inserted: Vec<(Tables, RecordId, Row)>,
    /// The number of this transaction in each outbox.
    numbers: Vec<(Tables, i64)>,
    pub(super) dedup_keys: Vec<(Tables, String)>,
    /// Records that go at the commit, and their dedup keys.
    pub(super) cancelled: Vec<(Tables, RecordId)>,
    pub(super) freed: Vec<(Tables, String)>,
    effects: Vec<String>,
    pub(super) held: Held,
}

/// A transaction; dropping it rolls it back.
#[derive(Debug)]
pub struct MemoryTransaction(MemoryConnection);

impl MemoryPool {
    /// An empty outbox of its own.
    pub fn new() -> Self {
        Self { client: Client::new(Arc::new(Shared::new()), None) }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Only if [`fail_next`](Self::fail_next) asked for one.
    pub async fn begin(&self) -> Result<MemoryTransaction, StoreError> {
        let begun = self.client.call("begin", |data, _| {
            MemoryTransaction(MemoryConnection {
                client: self.client.clone(),
                server: data.server,
                inserted: Vec::new(),
                // As of a transaction that has written other rows first.
                numbers: data.begin_everywhere(),
                dedup_keys: Vec::new(),
                cancelled: Vec::new(),
                freed: Vec::new(),
                effects: Vec::new(),
                held: Held::none(&self.client.shared.locks),
            })
        });
        begun.await
    }

    /// The effects of all committed transactions, in the order of the commits.
    pub fn effects(&self) -> Vec<String> {
        self.client.shared.data().effects.clone()
    }

    /// Makes the next calls of this name fail as a broken connection does. The names are those in
    /// [`StoreError::call`]: `begin`, `commit`, `fetch`, `due`, `settle`, `resolve`, `beat`, `view` …
    pub fn fail_next(&self, call: &str, times: usize, fault: Fault) {
        self.client.shared.faults.add(call, times, fault);
    }

    /// The same tables, seen by a client that meets these conditions.
    #[doc(hidden)]
    #[must_use]
    pub fn under(&self, conditions: Arc<dyn Conditions>) -> Self {
        let mut data = self.client.shared.data();
        data.journaled = true;
        data.outboxes.values_mut().for_each(super::Outbox::open_journal);
        Self { client: Client::new(Arc::clone(&self.client.shared), Some(conditions)) }
    }

    /// The database as it is now.
    #[doc(hidden)]
    pub fn moment(&self) -> Moment {
        Moment(self.client.shared.data().clone())
    }

    /// Another server takes over, which knows nothing of what was committed after that moment. Unless it gives
    /// `ids_again`, the ids of the one before are used up.
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

impl MemoryConnection {
    /// Writes a text that appears in [`MemoryPool::effects`] at the commit: the business row of a
    /// test.
    pub fn push_effect(&mut self, effect: impl Into<String>) {
        self.effects.push(effect.into());
    }

    /// A server that has taken over knows nothing of this transaction.
    pub(super) fn on_this_server(&self, data: &Data, call: &'static str) -> Result<(), StoreError> {
        if data.server == self.server { Ok(()) } else { Err(failed_over(call)) }
    }

    /// What was written so far becomes visible.
    fn write(&mut self, data: &mut Data, now: Instant) -> Result<(), StoreError> {
        self.on_this_server(data, "commit")?;
        for (tables, id) in &self.cancelled {
            data.outbox(tables).records.remove(*id);
        }
        for (tables, key) in self.freed.drain(..) {
            data.outbox(&tables).dedup_keys.remove(&key);
        }
        for (tables, id, row) in self.inserted.drain(..) {
            data.outbox(&tables).records.insert(id, row);
        }
        self.end(data);
        for (tables, key) in self.dedup_keys.drain(..) {
            data.outbox(&tables).dedup_keys.insert(key, now);
        }
        data.effects.append(&mut self.effects);
        Ok(())
    }

    pub(super) fn insert(&mut self, tables: &Tables, records: &[NewRecord]) -> Result<(), StoreError> {
        let out_of_range =
            |what| StoreError::new("insert", ErrorClass::Record, format!("the {what} is out of range"));
        let now = self.client.now();
        for record in records {
            let next_attempt = match record.due {
                Due::Now => None,
                Due::After(delay) => Some(now.checked_add(delay)),
                Due::At(time) => Some(self.client.shared.instant_of(time)),
            };
            let next_attempt =
                next_attempt.map(|at| at.ok_or_else(|| out_of_range("due time"))).transpose()?;
            let expires = record.deadline.map(|deadline| match deadline {
                Deadline::After(left) => now.checked_add(left),
                Deadline::At(time) => self.client.shared.instant_of(time),
            });
            let expires = expires.map(|at| at.ok_or_else(|| out_of_range("deadline"))).transpose()?;
            let row = Row {
                new: record.clone(),
                created: now,
                status: if next_attempt.is_some() { Status::Delayed } else { Status::Pending },
                attempts: 0,
                next_attempt,
                expires,
                completed: None,
                last_error: None,
            };
            let id = self.draw_id(tables)?;
            self.inserted.push((tables.clone(), id, row));
        }
        Ok(())
    }

    /// The number comes before the id, as in PostgreSQL.
    fn draw_id(&mut self, tables: &Tables) -> Result<RecordId, StoreError> {
        let mut data = self.client.shared.data();
        self.on_this_server(&data, "insert")?;
        let outbox = data.outbox(tables);
        if !self.numbers.iter().any(|(of, _)| of == tables) {
            self.numbers.push((tables.clone(), outbox.begin()));
        }
        let own = self.numbers.iter().filter(|(of, _)| of == tables);
        for (_, number) in own {
            outbox.open.insert(*number, true);
        }
        Ok(outbox.draw_id())
    }

    /// The transaction has ended, whichever way.
    fn end(&mut self, data: &mut Data) {
        if data.server != self.server {
            return;
        }
        for (tables, number) in self.numbers.drain(..) {
            data.outbox(&tables).open.remove(&number);
        }
        for (tables, id) in self.cancelled.drain(..) {
            data.outbox(&tables).cancelling.remove(&id);
        }
    }

    pub(super) async fn lock_keys(&mut self, tables: &Tables, keys: &[&str]) -> Result<(), StoreError> {
        for key in keys {
            self.held.take("lock keys", Lock::Key(tables.clone(), (*key).to_owned())).await?;
        }
        Ok(())
    }

    pub(super) async fn note_dedup_key(&mut self, tables: &Tables, key: &str) -> Result<bool, StoreError> {
        let freed = self.freed.iter().any(|(of, own)| of == tables && own == key);
        let noted = |shared: &Shared| !freed && shared.data().outbox(tables).dedup_keys.contains_key(key);
        if noted(&self.client.shared) || self.dedup_keys.iter().any(|(of, own)| of == tables && own == key) {
            return Ok(false);
        }
        // Whoever notes it at the same time decides by its commit or rollback.
        self.held.take("note dedup key", Lock::DedupKey(tables.clone(), key.to_owned())).await?;
        if noted(&self.client.shared) {
            return Ok(false);
        }
        self.dedup_keys.push((tables.clone(), key.to_owned()));
        Ok(true)
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.client.shared);
        self.end(&mut shared.data());
    }
}

impl MemoryTransaction {
    /// Makes everything visible that was written on the transaction.
    ///
    /// # Errors
    /// Only if [`MemoryPool::fail_next`] asked for one.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let client = self.client.clone();
        client.call("commit", |data, now| self.write(data, now)).await?
    }

    /// Gives up everything that was written on the transaction.
    ///
    /// # Errors
    /// Never; as in sqlx, so that a test can change its database.
    pub async fn rollback(self) -> Result<(), StoreError> {
        drop(self);
        Ok(())
    }

    pub(super) fn write(&mut self, data: &mut Data, now: Instant) -> Result<(), StoreError> {
        self.0.write(data, now)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::{
        database::Database,
        instance::InstanceId,
        partition::{Partition, PartitionSet},
        record::{Change, Settlement},
        rules::watermark::Server,
        store::{Completed, FenceRow, NewInstance, Pick, Resolution, Store, StoreSettings},
    };

    fn store(pool: &MemoryPool) -> Arc<dyn Store> {
        let settings = StoreSettings {
            tables: Tables::default(),
            completed: Completed::Delete,
            call_timeout: Duration::from_secs(1),
            async_settle: false,
        };
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
