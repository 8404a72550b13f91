//! A place in the queue of a resource: entered, waited in, left.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use keylane_sql::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    clock,
    database::{LockDatabase, Wake},
    error::LockError,
    rules::{self, Standing},
    shared::{Shared, again, chance},
    signals::Waiter,
    ticket::NewTicket,
    trust::Trust,
};

/// A ticket in the queue. Dropped, it leaves the queue in the background.
pub(crate) struct Place<DB: LockDatabase> {
    pub(crate) shared: Arc<Shared<DB>>,
    pub(crate) resource: String,
    pub(crate) token: i64,
    pub(crate) ticket: String,
    pub(crate) trust: Arc<Trust>,
    has_left: AtomicBool,
}

impl<DB: LockDatabase> Place<DB> {
    /// Queues a ticket, in a task of its own: if the caller is dropped meanwhile, the task still ends, and the
    /// place is dropped after it.
    pub(crate) async fn enter(
        shared: &Arc<Shared<DB>>,
        resource: &str,
        owner: &str,
        deadline: Instant,
    ) -> Result<Self, LockError> {
        let new = NewTicket {
            resource: resource.to_owned(),
            ticket: uuid::Uuid::now_v7().simple().to_string(),
            client: shared.client.clone(),
            owner: owner.to_owned(),
            lease: shared.lease,
        };
        let entered = tokio::spawn(Arc::clone(shared).enter(new, deadline)).await;
        entered.unwrap_or_else(|error| Err(LockError::of::<DB>("queue")(task_error(error))))
    }

    /// Whether no ticket ahead has a lease that lasts.
    pub(crate) async fn is_first(&self) -> Result<bool, LockError> {
        let standing = |highest| rules::standing(self.token, highest);
        Ok(self.shared.standing(&self.resource, self.token, standing).await? == Standing::First)
    }

    /// Waits until nobody is ahead. `false` if the ticket has gone: it was not renewed in time.
    pub(crate) async fn wait(&self) -> Result<bool, LockError> {
        let waiter = self.shared.waiters.open();
        let standing = |highest| rules::standing(self.token, highest);
        if !self.shared.wait(&self.resource, self.token, &waiter, standing).await? {
            self.trust.lose();
            return Ok(false);
        }
        if self.trust.needs_renewal() {
            let own = [(self.ticket.clone(), Arc::clone(&self.trust))];
            again(|| self.shared.renew(&own)).await?;
        }
        Ok(self.trust.hold())
    }

    /// Deletes the ticket. `false` if another client has deleted it.
    pub(crate) async fn leave(&self) -> Result<bool, LockError> {
        if self.has_left.swap(true, SeqCst) {
            return Ok(true);
        }
        let left = tokio::spawn(Arc::clone(&self.shared).leave(self.ticket.clone(), Arc::clone(&self.trust)));
        left.await.unwrap_or_else(|error| Err(LockError::of::<DB>("leave")(task_error(error))))
    }
}

impl<DB: LockDatabase> Drop for Place<DB> {
    fn drop(&mut self) {
        if self.has_left.swap(true, SeqCst) {
            return;
        }
        // Without a runtime, the ticket expires.
        self.shared.tickets.remove(&self.ticket);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Arc::clone(&self.shared).leave(self.ticket.clone(), Arc::clone(&self.trust)));
        }
    }
}

impl<DB: LockDatabase> Shared<DB> {
    async fn enter(self: Arc<Self>, new: NewTicket, deadline: Instant) -> Result<Place<DB>, LockError> {
        let sent_at = clock::now();
        self.wake.open(&new.ticket).await;
        let mut failed = 0;
        let token = loop {
            let error = match self.queue(&new).await {
                Ok(token) => break token,
                Err(error) => error,
            };
            // The ticket may be in the queue although the answer was lost.
            if let Ok(Some(token)) = again(|| self.find(&new.ticket)).await {
                break token;
            }
            if !error.is_retryable() || Instant::now() >= deadline {
                let trust = Arc::new(Trust::since(sent_at, self.lease));
                drop(Arc::clone(&self).leave(new.ticket, trust).await);
                return Err(error);
            }
            failed += 1;
            sleep(rules::backoff(failed, chance())).await;
        };
        let trust = Arc::new(Trust::since(sent_at, self.lease));
        self.track(&new.ticket, Arc::clone(&trust));
        let (resource, ticket) = (new.resource, new.ticket);
        Ok(Place { shared: self, resource, token, ticket, trust, has_left: AtomicBool::new(false) })
    }

    async fn leave(self: Arc<Self>, ticket: String, trust: Arc<Trust>) -> Result<bool, LockError> {
        self.tickets.remove(&ticket);
        let mut tries = 0;
        let deleted = again(|| {
            tries += 1;
            let values = vec![Value::Text(ticket.clone())];
            self.run("release", &self.sql.leave, values)
        });
        let deleted = deleted.await;
        // A try whose answer was lost may have deleted the ticket. While the trust lasts, no other client deletes it.
        let was_ours = matches!(deleted, Ok(1..)) || (tries > 1 && trust.is_held());
        trust.lose();
        self.waiters.gone(&ticket);
        DB::Wake::close(&self.wake, &ticket).await;
        deleted.map(|_| was_ours)
    }

    /// The standing of a token. Expired tickets ahead of it are deleted on the way.
    async fn standing(
        &self,
        resource: &str,
        token: i64,
        standing: impl Fn(Vec<rules::Ahead>) -> Standing,
    ) -> Result<Standing, LockError> {
        loop {
            match standing(again(|| self.read_queue(resource, token)).await?) {
                Standing::Behind(ahead) if ahead.left.is_zero() => {
                    again(|| self.evict(resource, &ahead)).await?;
                }
                found => return Ok(found),
            }
        }
    }

    /// Waits until nobody is ahead of a token. `false` if its own ticket has gone.
    pub(crate) async fn wait(
        &self,
        resource: &str,
        token: i64,
        waiter: &Waiter,
        standing: impl Fn(Vec<rules::Ahead>) -> Standing,
    ) -> Result<bool, LockError> {
        loop {
            waiter.read_begins();
            let ahead = match self.standing(resource, token, &standing).await? {
                Standing::Gone => return Ok(false),
                Standing::First => return Ok(true),
                Standing::Behind(ahead) => ahead,
            };
            waiter.wait_for(&ahead.ticket);
            // The database rounds to milliseconds, so the wait is one longer.
            let longest = ahead.left + Duration::from_millis(1);
            match ahead.client == self.client {
                true => waiter.notified(longest).await,
                false => self.wake.wait(waiter, &ahead.ticket, longest).await,
            }
        }
    }
}

/// A task that has ended without a result: its runtime has ended.
pub(crate) fn task_error(error: tokio::task::JoinError) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(error))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions};

    use super::*;
    use crate::{LockClient, rules::Ahead};

    /// A client with a database of its own, and the file of that.
    pub(crate) async fn client(name: &str) -> (LockClient<Sqlite>, PathBuf) {
        let file = std::env::temp_dir().join(format!("keylane-lock-{name}-{}.db", std::process::id()));
        let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
        let locks = LockClient::new(SqlitePool::connect_with(options).await.unwrap());
        locks.migrate().await.unwrap();
        (locks, file)
    }

    #[tokio::test]
    async fn a_ticket_that_was_renewed_meanwhile_is_not_deleted() {
        let (locks, file) = client("renewed").await;
        let guard = locks.lock("one").await.unwrap();
        // The ticket as another client has seen it before a renewal.
        let ahead = Ahead {
            token: guard.token(),
            ticket: String::new(),
            client: String::new(),
            left: Duration::ZERO,
        };
        locks.shared.evict("one", &ahead).await.unwrap();
        assert_eq!(locks.queue("one").await.unwrap().len(), 1);
        guard.release().await.unwrap();
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn a_renewal_counts_from_its_question_however_late_the_answer_is() {
        let (locks, file) = client("late").await;
        let deadline = Instant::now() + Duration::from_secs(10);
        let place = Place::enter(&locks.shared, "one", "owner", deadline).await.unwrap();
        let lease = Duration::from_secs(4);
        let trust = Arc::new(Trust::since(Duration::ZERO, lease));
        let own = [(place.ticket.clone(), Arc::clone(&trust))];
        let writer = locks.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        let late = async {
            sleep(lease / 2).await;
            writer.commit().await.unwrap();
        };
        let (renewed, ()) = tokio::join!(locks.shared.renew(&own), late);
        renewed.unwrap();
        assert!(trust.needs_renewal(), "half of the lease went by while the answer was waited for");
        assert!(trust.hold());
        assert!(place.leave().await.unwrap());
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn a_ticket_whose_answer_was_lost_is_found() {
        let (locks, file) = client("lost").await;
        let shared = &locks.shared;
        let new = NewTicket {
            resource: "one".to_owned(),
            ticket: "ticket".to_owned(),
            client: shared.client.clone(),
            owner: "owner".to_owned(),
            lease: Duration::from_secs(30),
        };
        let token = shared.queue(&new).await.unwrap();
        let place = Arc::clone(shared).enter(new, Instant::now() + Duration::from_secs(10)).await.unwrap();
        assert_eq!(place.token, token);
        assert_eq!(locks.queue("one").await.unwrap().len(), 1);
        assert!(place.wait().await.unwrap() && place.leave().await.unwrap());
        std::fs::remove_file(file).unwrap();
    }
}
