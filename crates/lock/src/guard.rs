//! The guard of a lock that is held.

use std::{fmt, sync::Arc};

use keylane_sql::Value;
use tokio::sync::Mutex;

use crate::{
    database::LockDatabase,
    error::LockError,
    place::{Place, task_error},
};

/// A lock that is held until it is released or lost. The client renews it in the background.
///
/// [`release`](Self::release) is certain: when the call has returned, the next waiter may hold the lock. Dropping is
/// best effort: the release runs in the background, and if it fails, or if the runtime has ended, the lock is free
/// when its lease ends.
#[must_use = "dropped, the lock is released in the background"]
pub struct LockGuard<DB: LockDatabase>(Option<Arc<Hold<DB>>>);

impl<DB: LockDatabase> fmt::Debug for LockGuard<DB> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("LockGuard");
        debug.field("resource", &self.resource()).field("token", &self.token()).finish_non_exhaustive()
    }
}

/// The state that the guards of one owner share.
pub(crate) struct Hold<DB: LockDatabase> {
    place: Place<DB>,
    /// The number of guards that are not released; 0 after the ticket was deleted.
    entries: Mutex<i64>,
}

impl<DB: LockDatabase> LockGuard<DB> {
    pub(crate) fn first(place: Place<DB>) -> Self {
        Self(Some(Arc::new(Hold { place, entries: Mutex::new(1) })))
    }

    pub(crate) fn hold(&self) -> Option<&Arc<Hold<DB>>> {
        self.0.as_ref()
    }

    /// The fencing token: higher than that of any holder before. Send the token with each write, so that the store of
    /// the effect can refuse a lower token than the highest one it has seen.
    pub fn token(&self) -> i64 {
        self.place().token
    }

    /// The name of the resource.
    pub fn resource(&self) -> &str {
        &self.place().resource
    }

    /// Whether the lock is held for certain. Check this before an effect that cannot carry the token.
    pub fn is_held(&self) -> bool {
        self.place().trust.is_held()
    }

    /// Returns when the lock is no longer held for certain, and before another client can hold it.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn lost(&self) {
        self.place().trust.lost().await;
    }

    /// Releases the lock, or one of the entries of its owner. When the call has returned, the database has freed it.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lease ended before, and another client has deleted the ticket. If the database
    /// fails, the lock is free when its lease ends, because its renewals have ended.
    ///
    /// # Cancel safety
    /// If it is dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        match self.0.take() {
            // In a task of its own: it waits for others of its owner, and goes on if the caller is dropped meanwhile.
            Some(hold) => {
                let released = tokio::spawn(hold.take_down()).await;
                released.unwrap_or_else(|error| Err(LockError::of::<DB>("release")(task_error(error))))
            }
            None => Ok(()),
        }
    }

    #[expect(clippy::expect_used, reason = "the hold is there until `release` or `drop` takes it")]
    fn place(&self) -> &Place<DB> {
        &self.0.as_ref().expect("a guard that is not released").place
    }
}

impl<DB: LockDatabase> Drop for LockGuard<DB> {
    fn drop(&mut self) {
        let Some(hold) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = hold.take_down().await {
                    tracing::warn!(target: "keylane_lock", %error, "a lock that was dropped was not released");
                }
            });
        }
    }
}

impl<DB: LockDatabase> Hold<DB> {
    /// Enters once more. `None` if the last guard has been released meanwhile.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Option<LockGuard<DB>>, LockError> {
        let mut entries = self.entries.lock().await;
        if *entries == 0 {
            return Ok(None);
        }
        self.count(*entries + 1).await?;
        *entries += 1;
        Ok(Some(LockGuard(Some(Arc::clone(self)))))
    }

    async fn take_down(self: Arc<Self>) -> Result<(), LockError> {
        let mut entries = self.entries.lock().await;
        *entries -= 1;
        match *entries {
            0 if self.place.leave().await? => Ok(()),
            0 => Err(self.lost()),
            entered => self.count(entered).await,
        }
    }

    /// Writes how often the owner has entered.
    async fn count(&self, entries: i64) -> Result<(), LockError> {
        let Place { shared, resource, token, ticket, trust, .. } = &self.place;
        if !trust.is_held() {
            return Err(self.lost());
        }
        let values = vec![
            Value::Int(entries),
            Value::Exact(resource.clone()),
            Value::Int(*token),
            Value::Text(ticket.clone()),
        ];
        match shared.run("count entries", &shared.sql.count_entries, values).await? {
            0 => {
                trust.lose();
                Err(self.lost())
            }
            _ => Ok(()),
        }
    }

    fn lost(&self) -> LockError {
        LockError::Lost { resource: self.place.resource.clone() }
    }
}
