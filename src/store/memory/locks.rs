//! Locks that a transaction holds until its end: on keys (strict order), on dedup keys, and on keys whose
//! records are being cancelled.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::store::{ErrorClass, StoreError, Tables};

/// The longest wait for the lock of another transaction. Then the call fails with an error to retry, as on
/// the servers.
const LOCK_WAIT: Duration = Duration::from_secs(50);

/// The object of a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lock {
    Key(Tables, String),
    DedupKey(Tables, String),
    /// A key whose records are being cancelled.
    Cancelling(Tables, String),
}

/// The locks in use, by their objects.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<Lock, Arc<AsyncMutex<()>>>>);

/// The locks of one transaction. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Held {
    locks: Arc<Locks>,
    held: BTreeMap<Lock, OwnedMutexGuard<()>>,
}

impl Held {
    pub(super) fn none(locks: &Arc<Locks>) -> Self {
        Self { locks: Arc::clone(locks), held: BTreeMap::new() }
    }

    /// Takes a lock, unless this transaction already has it.
    pub(super) async fn take(&mut self, call: &'static str, lock: Lock) -> Result<(), StoreError> {
        if self.held.contains_key(&lock) {
            return Ok(());
        }
        let waiting = self.locks.of(&lock).lock_owned();
        let Ok(guard) = tokio::time::timeout(LOCK_WAIT, waiting).await else {
            return Err(StoreError::new(call, ErrorClass::Retry, "another transaction keeps its lock"));
        };
        self.held.insert(lock, guard);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.clear();
        self.locks.remove_unused();
    }
}

impl Locks {
    fn of(&self, lock: &Lock) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(lock.clone()).or_default())
    }

    fn remove_unused(&self) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    }
}
