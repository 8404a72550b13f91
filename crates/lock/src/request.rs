//! Asking for a lock.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use crate::{
    client::LockClient,
    database::LockDatabase,
    error::LockError,
    guard::{Hold, LockGuard},
    place::Place,
    shared::Shared,
};

/// The longest name of a resource, in bytes.
pub(crate) const LONGEST_RESOURCE: usize = 255;
/// The longest name of an owner, in bytes.
const LONGEST_OWNER: usize = 100;

/// The owners that a client has named, with what each holds.
pub(crate) type Owners<DB> = HashMap<(String, String), Arc<Slot<DB>>>;
/// One taking at a time by an owner.
pub(crate) type Slot<DB> = tokio::sync::Mutex<Weak<Hold<DB>>>;

/// What is asked for, before it is asked.
#[must_use = "call lock"]
pub struct LockRequest<'a, DB: LockDatabase> {
    client: &'a LockClient<DB>,
    resource: &'a str,
    owner: Option<&'a str>,
    timeout: Duration,
}

impl<DB: LockDatabase> std::fmt::Debug for LockRequest<'_, DB> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LockRequest").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<'a, DB: LockDatabase> LockRequest<'a, DB> {
    pub(crate) fn new(client: &'a LockClient<DB>, resource: &'a str, timeout: Duration) -> Self {
        Self { client, resource, owner: None, timeout }
    }

    /// Who asks. An owner that holds the lock, by this client or a clone of it, enters again; each guard takes one
    /// down. Without an owner, each request is a stranger to all others.
    pub fn owner(mut self, owner: &'a str) -> Self {
        self.owner = Some(owner);
        self
    }

    /// How long to wait at most; 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Waits for its turn.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], [`LockError::BadText`], and what the database says. What can be repeated is repeated
    /// until the time is over.
    ///
    /// # Cancel safety
    /// If it is dropped, the place in the queue is given up in the background.
    pub async fn lock(self) -> Result<LockGuard<DB>, LockError> {
        check("resource", self.resource, LONGEST_RESOURCE)?;
        // A time that no clock can hold is a year.
        let year = Duration::from_secs(31_536_000);
        let deadline = Instant::now() + self.timeout.min(year);
        let locked = async {
            match self.owner {
                Some(owner) => self.enter(owner, deadline).await,
                None => take(&self.client.shared, self.resource, &self.client.shared.name, deadline).await,
            }
        };
        let timed_out = || LockError::TimedOut { resource: self.resource.to_owned(), waited: self.timeout };
        timeout_at(deadline, locked).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Enters again, or takes the lock and remembers for whom.
    async fn enter(&self, owner: &str, deadline: Instant) -> Result<LockGuard<DB>, LockError> {
        check("owner", owner, LONGEST_OWNER)?;
        let slot = self.client.slot(self.resource, owner);
        let mut slot = slot.lock().await;
        if let Some(hold) = slot.upgrade()
            && let Some(guard) = hold.enter().await?
        {
            return Ok(guard);
        }
        let guard = take(&self.client.shared, self.resource, owner, deadline).await?;
        *slot = guard.hold().map(Arc::downgrade).unwrap_or_default();
        Ok(guard)
    }
}

impl<DB: LockDatabase> LockClient<DB> {
    fn slot(&self, resource: &str, owner: &str) -> Arc<Slot<DB>> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = |slot: &Arc<Slot<DB>>| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|hold| hold.strong_count() > 0)
        };
        owners.retain(|_, slot| is_used(slot));
        Arc::clone(owners.entry((resource.to_owned(), owner.to_owned())).or_default())
    }
}

/// Queues up and waits, again if the place was lost while waiting.
async fn take<DB: LockDatabase>(
    shared: &Arc<Shared<DB>>,
    resource: &str,
    owner: &str,
    deadline: Instant,
) -> Result<LockGuard<DB>, LockError> {
    loop {
        let place = Place::enter(shared, resource, owner, deadline).await?;
        if place.wait().await? {
            return Ok(LockGuard::first(place));
        }
    }
}

/// Refuses what the column does not take.
pub(crate) fn check(what: &'static str, text: &str, limit: usize) -> Result<(), LockError> {
    match text.len() {
        length if length == 0 || length > limit || text.contains('\0') => {
            Err(LockError::BadText { what, length, limit })
        }
        _ => Ok(()),
    }
}
