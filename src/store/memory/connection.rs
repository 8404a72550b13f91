//! The connection of a user's transaction: its writes are kept aside until the commit.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    client::{Client, failed_over},
    locks::{Held, Lock},
    rows::Row,
    state::{Data, Shared},
};
use crate::{
    record::{Deadline, Due, NewRecord, RecordId, Status},
    store::{ErrorClass, StoreError, Tables},
};

/// The connection of a transaction: its writes appear at the commit.
#[derive(Debug)]
pub struct MemoryConnection {
    pub(super) client: Client,
    /// The server on which the transaction began. Never changes.
    server: i64,
    /// The number of this transaction in each outbox. Set at the begin and by the first insert, drained at
    /// the end.
    numbers: Vec<(Tables, i64)>,
    pub(super) writes: Writes,
    /// The writes at the moment of each open savepoint.
    savepoints: Vec<Writes>,
    pub(super) held: Held,
    /// Unique to this transaction. Never changes.
    mark: Arc<()>,
}

/// The writes of a transaction, applied at its commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    pub(super) inserted: Vec<(Tables, RecordId, Row)>,
    /// The dedup keys, each with the time at which it was inserted.
    pub(super) dedup_keys: Vec<(Tables, String, Instant)>,
    /// Records to delete.
    pub(super) cancelled: Vec<(Tables, RecordId)>,
    /// Dedup keys to free if they were inserted by this time, that of their record.
    pub(super) freed: Vec<(Tables, String, Instant)>,
    effects: Vec<String>,
}

impl MemoryConnection {
    /// Begins a transaction of this client.
    pub(super) fn begin_on(client: &Client, data: &mut Data) -> Self {
        Self {
            client: client.clone(),
            server: data.server,
            // The transaction has its numbers from the begin, as if it had written other rows first.
            numbers: data.begin_everywhere(),
            writes: Writes::default(),
            savepoints: Vec::new(),
            held: Held::none(&client.shared.locks),
            mark: Arc::default(),
        }
    }

    /// Writes a text that appears in [`MemoryPool::effects`](super::MemoryPool::effects) after the commit:
    /// the business row of a test.
    pub fn push_effect(&mut self, effect: impl Into<String>) {
        self.writes.effects.push(effect.into());
    }

    /// Whether a savepoint is open.
    pub(super) fn has_savepoint(&self) -> bool {
        !self.savepoints.is_empty()
    }

    pub(super) fn set_savepoint(&mut self) {
        self.savepoints.push(self.writes.clone());
    }

    pub(super) fn release_savepoint(&mut self) {
        self.savepoints.pop();
    }

    /// Discards the writes since the last savepoint. Ids stay drawn, and locks stay held.
    pub(super) fn roll_back_to_savepoint(&mut self) {
        let Some(before) = self.savepoints.pop() else { return };
        let given_up = std::mem::replace(&mut self.writes, before).cancelled;
        let shared = Arc::clone(&self.client.shared);
        self.spare(&mut shared.data(), given_up.into_iter().skip(self.writes.cancelled.len()));
    }

    /// The mark of this transaction, which no other transaction has.
    pub(super) fn mark(&self) -> Arc<()> {
        Arc::clone(&self.mark)
    }

    /// Whether this is the transaction with that mark.
    pub(super) fn bears(&self, mark: &Arc<()>) -> bool {
        Arc::ptr_eq(&self.mark, mark)
    }

    /// Fails if another server has taken over, which does not know this transaction.
    pub(super) fn on_this_server(&self, data: &Data, call: &'static str) -> Result<(), StoreError> {
        if data.server == self.server { Ok(()) } else { Err(failed_over(call)) }
    }

    /// Makes the writes so far visible.
    pub(super) fn write(&mut self, data: &mut Data) -> Result<(), StoreError> {
        self.on_this_server(data, "commit")?;
        for (tables, id) in &self.writes.cancelled {
            data.outbox(tables).records.remove(*id);
        }
        for (tables, key, until) in self.writes.freed.drain(..) {
            data.outbox(&tables).dedup_keys.retain(|of, at| *of != key || *at > until);
        }
        for (tables, id, row) in self.writes.inserted.drain(..) {
            data.outbox(&tables).records.insert(id, row);
        }
        self.end(data);
        for (tables, key, at) in self.writes.dedup_keys.drain(..) {
            data.outbox(&tables).dedup_keys.insert(key, at);
        }
        data.effects.append(&mut self.writes.effects);
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
            let status = if next_attempt.is_some() { Status::Delayed } else { Status::Pending };
            let row = Row { status, next_attempt, expires, ..Row::pending(record.clone(), now) };
            let id = self.draw_id(tables)?;
            self.writes.inserted.push((tables.clone(), id, row));
        }
        Ok(())
    }

    /// Draws the number of the transaction before the id, as PostgreSQL does.
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

    /// Ends the transaction after a commit or a rollback.
    fn end(&mut self, data: &mut Data) {
        if data.server != self.server {
            return;
        }
        for (tables, number) in self.numbers.drain(..) {
            data.outbox(&tables).open.remove(&number);
        }
        let cancelled = std::mem::take(&mut self.writes.cancelled);
        self.spare(data, cancelled);
    }

    /// Ends the cancelling of these records.
    fn spare(&self, data: &mut Data, records: impl IntoIterator<Item = (Tables, RecordId)>) {
        if data.server == self.server {
            for (tables, id) in records {
                data.outbox(&tables).cancelling.remove(&id);
            }
        }
    }

    pub(super) async fn lock_keys(&mut self, tables: &Tables, keys: &[&str]) -> Result<(), StoreError> {
        self.on_this_server(&self.client.shared.data(), "lock keys")?;
        for key in keys {
            self.held.take("lock keys", Lock::Key(tables.clone(), (*key).to_owned())).await?;
        }
        Ok(())
    }

    pub(super) async fn insert_dedup_key(&mut self, tables: &Tables, key: &str) -> Result<bool, StoreError> {
        self.on_this_server(&self.client.shared.data(), "insert dedup key")?;
        let freed = self.writes.freed.iter().filter(|(of, own, _)| of == tables && own == key);
        let freed = freed.map(|(_, _, until)| *until).max();
        let exists = |shared: &Shared| {
            let at = shared.data().outbox(tables).dedup_keys.get(key).copied();
            // `None` is less than any time.
            at > freed
        };
        if exists(&self.client.shared)
            || self.writes.dedup_keys.iter().any(|(of, own, _)| of == tables && own == key)
        {
            return Ok(false);
        }
        // If another transaction inserts the same key, wait for its commit or rollback.
        self.held.take("insert dedup key", Lock::DedupKey(tables.clone(), key.to_owned())).await?;
        if exists(&self.client.shared) {
            return Ok(false);
        }
        self.writes.dedup_keys.push((tables.clone(), key.to_owned(), self.client.now()));
        Ok(true)
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.client.shared);
        self.end(&mut shared.data());
    }
}
