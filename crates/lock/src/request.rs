//! Requests for a lock.

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

/// The owners of a client, by resource and name, with the lock that each holds.
pub(crate) type Owners<DB> = HashMap<(String, String), Arc<Slot<DB>>>;
/// The lock of one owner; its mutex lets one request of the owner in at a time.
pub(crate) type Slot<DB> = tokio::sync::Mutex<Weak<Hold<DB>>>;

/// A request for a lock, with its settings.
#[must_use = "call lock or try_lock"]
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

    /// The owner of the request. An owner that holds the lock, through this client or a clone, enters again, and each
    /// guard releases one entry. Requests without an owner wait for one another.
    pub fn owner(mut self, owner: &'a str) -> Self {
        self.owner = Some(owner);
        self
    }

    /// How long to wait at most; 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Waits for the resource and locks it.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], [`LockError::BadText`], and [`LockError::Database`]. Failures that may pass are tried
    /// again until the timeout.
    ///
    /// # Cancel safety
    /// If it is dropped, the place in the queue is given up in the background.
    pub async fn lock(self) -> Result<LockGuard<DB>, LockError> {
        self.taken(true).await?.ok_or_else(|| self.timed_out())
    }

    /// Locks if nobody holds the resource and nobody waits for it; `None` otherwise.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); the timeout is for the answers of the database.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(self) -> Result<Option<LockGuard<DB>>, LockError> {
        self.taken(false).await
    }

    fn timed_out(&self) -> LockError {
        LockError::TimedOut { resource: self.resource.to_owned(), waited: self.timeout }
    }

    async fn taken(&self, waits: bool) -> Result<Option<LockGuard<DB>>, LockError> {
        check("resource", self.resource, LONGEST_RESOURCE)?;
        // A longer time may be beyond what the clock can hold.
        let year = Duration::from_secs(31_536_000);
        let deadline = Instant::now() + self.timeout.min(year);
        let shared = &self.client.shared;
        let taken = async {
            match self.owner {
                Some(owner) => self.enter(owner, deadline, waits).await,
                None => take(shared, self.resource, &shared.name, deadline, waits).await,
            }
        };
        in_time(taken, deadline).await.unwrap_or_else(|| Err(self.timed_out()))
    }

    /// Enters again, or takes the lock and remembers the owner.
    async fn enter(
        &self,
        owner: &str,
        deadline: Instant,
        waits: bool,
    ) -> Result<Option<LockGuard<DB>>, LockError> {
        check("owner", owner, LONGEST_OWNER)?;
        let slot = self.client.slot(self.resource, owner);
        let mut slot = slot.lock().await;
        if let Some(hold) = slot.upgrade()
            && let Some(guard) = hold.enter().await?
        {
            return Ok(Some(guard));
        }
        let guard = take(&self.client.shared, self.resource, owner, deadline, waits).await?;
        *slot = guard.as_ref().and_then(LockGuard::hold).map(Arc::downgrade).unwrap_or_default();
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

/// What came before the deadline. A failure that would be tried again may come at the deadline itself, and counts as
/// nothing: when a call ends must not decide which error the caller gets.
async fn in_time<T>(
    taken: impl Future<Output = Result<T, LockError>>,
    deadline: Instant,
) -> Option<Result<T, LockError>> {
    let taken = timeout_at(deadline, taken).await.ok()?;
    let is_late = |error: &LockError| error.is_retryable() && Instant::now() >= deadline;
    (!taken.as_ref().is_err_and(is_late)).then_some(taken)
}

/// Queues a ticket and waits, and does so again if the ticket was lost meanwhile. `None` if the request must not wait
/// and is not first.
async fn take<DB: LockDatabase>(
    shared: &Arc<Shared<DB>>,
    resource: &str,
    owner: &str,
    deadline: Instant,
    waits: bool,
) -> Result<Option<LockGuard<DB>>, LockError> {
    loop {
        let place = Place::enter(shared, resource, owner, deadline).await?;
        if !waits && !place.is_first().await? {
            place.leave().await?;
            return Ok(None);
        }
        if place.wait().await? {
            return Ok(Some(LockGuard::first(place)));
        }
    }
}

/// Refuses a text that the column does not take.
pub(crate) fn check(what: &'static str, text: &str, limit: usize) -> Result<(), LockError> {
    match text.len() {
        length if length == 0 || length > limit || text.contains('\0') => {
            Err(LockError::BadText { what, length, limit })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::place::tests::client;

    const LIMIT: Duration = Duration::from_secs(1);

    /// Fails after this time, and returns whether the failure is the answer.
    async fn is_answered_by_a_failure(after: Duration, error: LockError) -> bool {
        let failed = async {
            sleep(after).await;
            Err::<(), _>(error)
        };
        in_time(failed, Instant::now() + LIMIT).await.is_some()
    }

    fn retryable() -> LockError {
        LockError::NoAnswer { call: "enter", limit: LIMIT }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_at_the_deadline_is_a_timeout_if_it_would_be_tried_again() {
        let lost = || LockError::Lost { resource: "one".to_owned() };
        assert!(is_answered_by_a_failure(LIMIT / 2, retryable()).await);
        assert!(!is_answered_by_a_failure(LIMIT, retryable()).await);
        assert!(is_answered_by_a_failure(LIMIT, lost()).await, "no further attempt would help");
        assert!(!is_answered_by_a_failure(2 * LIMIT, lost()).await);
    }

    #[tokio::test]
    async fn owners_that_hold_nothing_are_forgotten() {
        let (locks, file) = client("owners").await;
        for number in 0..20 {
            let owner = format!("job {number}");
            locks.request("one").owner(&owner).lock().await.unwrap().release().await.unwrap();
        }
        assert!(locks.owners.lock().unwrap().len() <= 2);
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn nobody_enters_what_was_released_for_good() {
        let (locks, file) = client("entered").await;
        let guard = locks.request("one").owner("job").lock().await.unwrap();
        let hold = Arc::clone(guard.hold().unwrap());
        guard.release().await.unwrap();
        assert!(hold.enter().await.unwrap().is_none());
        std::fs::remove_file(file).unwrap();
    }
}
