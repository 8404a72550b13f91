//! Claims: for effects outside the database. The effect happens at least once, and one consumer works at a time.

use std::convert::Infallible;

use keylane_sql::Value;
use tokio::time::Instant;

use crate::{
    core::bounded,
    error::{InboxError, OnceError},
    inbox::{Inbox, InboxDatabase},
    once::Once,
    take::{Met, Taken},
};

/// A message that this process holds until the lease ends. Its row has the status PROCESSING.
///
/// If the claim is dropped without an outcome, the message may be claimed again after the lease.
#[derive(Debug)]
#[must_use = "complete it, or the message waits for the end of its lease"]
pub struct Claim<DB: InboxDatabase> {
    inbox: Inbox<DB>,
    event_id: String,
    group: String,
    taken: Taken,
    began: Instant,
}

/// Why a claim could not be renewed or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The lease has ended, and another consumer has claimed the message since. The other claim stays as it is.
    #[error("the claim of {event_id} outlived its lease, and another has claimed the message")]
    Lost {
        /// Which message.
        event_id: String,
    },
    /// The inbox failed.
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

/// Why [`Inbox::process`] has not completed a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError<E> {
    /// The message could not be taken, or the work failed. A failure of the work is written as FAILED.
    #[error(transparent)]
    Once(OnceError<E>),
    /// The claim was lost: the work was dropped, or its outcome was not written.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// Claims a message whose effect is outside the database: a mail, a call of another service.
    ///
    /// `None` if the message was consumed before. Renew the claim before its lease ends, and end it with
    /// [`Claim::complete`] or [`Claim::fail`].
    ///
    /// # Errors
    /// [`OnceError::InProgress`] while the lease of another consumer lasts: let the broker deliver the message again.
    pub async fn claim(
        &self,
        event_id: &str,
        group: &str,
    ) -> Result<Option<Claim<DB>>, OnceError<Infallible>> {
        let mut lent = self.lend().await.map_err(InboxError::of::<DB>("connect"))?;
        let mut taken = self.shared.take::<DB>(lent.conn(), group, &[event_id]).await?;
        lent.commit().await.map_err(InboxError::of::<DB>("claim"))?;
        match taken.met.pop() {
            Some((_, Met::Seen)) => Ok(None),
            Some((event_id, Met::Busy { owner, left })) => {
                Err(OnceError::InProgress { event_id, owner, left })
            }
            None => Ok(Some(Claim {
                inbox: self.clone(),
                event_id: event_id.to_owned(),
                group: group.to_owned(),
                taken,
                began: Instant::now(),
            })),
        }
    }

    /// Claims a message, runs the work, and renews the claim meanwhile. A crash in between repeats the work, so the
    /// effect happens at least once. If the other side knows idempotency keys, send it the event id.
    ///
    /// If another consumer claims the message, because this process stood still for longer than the lease, the work
    /// is dropped at its current `await`.
    ///
    /// # Errors
    /// [`ProcessError`].
    ///
    /// # Cancel safety
    /// If it is dropped, the message may be claimed again when the lease has ended.
    pub async fn process<T, E: std::fmt::Display>(
        &self,
        event_id: &str,
        group: &str,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<Once<T>, ProcessError<E>> {
        let claim = match self.claim(event_id, group).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(Once::Seen),
            Err(error) => return Err(ProcessError::Once(without_work(error))),
        };
        let done = tokio::select! {
            biased;
            done = work() => done,
            lost = claim.keep() => return Err(lost.into()),
        };
        match done {
            Ok(done) => {
                claim.complete().await?;
                Ok(Once::Done(done))
            }
            Err(error) => {
                claim.fail(&error.to_string()).await?;
                Err(ProcessError::Once(OnceError::Work(error)))
            }
        }
    }
}

impl<DB: InboxDatabase> Claim<DB> {
    /// The message.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// Restarts the lease.
    ///
    /// # Errors
    /// [`ClaimError::Lost`] if another consumer has claimed the message.
    pub async fn renew(&self) -> Result<(), ClaimError> {
        let mut values = vec![Value::millis(self.inbox.shared.lease)];
        values.extend(self.key());
        self.write("renew", &self.inbox.shared.sql.renew, values).await
    }

    /// Writes that the message was consumed. A lease that has ended does no harm, unless another consumer has claimed
    /// the message since.
    ///
    /// # Errors
    /// [`ClaimError::Lost`] if another consumer has claimed the message.
    pub async fn complete(self) -> Result<(), ClaimError> {
        let (shared, cost) = (&self.inbox.shared, self.began.elapsed());
        let mut lent = self.inbox.lend().await.map_err(InboxError::of::<DB>("connect"))?;
        let finished = shared.finish::<DB>(lent.conn(), &self.group, &self.taken, cost, false).await?;
        lent.commit().await.map_err(InboxError::of::<DB>("finish"))?;
        match finished {
            true => Ok(()),
            false => Err(ClaimError::Lost { event_id: self.event_id.clone() }),
        }
    }

    /// Writes that the work has failed: the message may be claimed again at once.
    ///
    /// # Errors
    /// [`ClaimError::Lost`] if another consumer has claimed the message.
    pub async fn fail(self, error: &str) -> Result<(), ClaimError> {
        let mut values = vec![Value::millis(self.began.elapsed()), Value::Text(bounded(error))];
        values.extend(self.key());
        self.write("fail", &self.inbox.shared.sql.fail, values).await
    }

    /// Renews the claim until it is lost. A renewal that fails is tried again at the next interval.
    async fn keep(&self) -> ClaimError {
        let every = self.inbox.shared.lease / 3;
        loop {
            tokio::time::sleep(every).await;
            match self.renew().await {
                Ok(()) => {}
                Err(ClaimError::Inbox(error)) => {
                    let event_id = self.event_id.as_str();
                    tracing::warn!(target: "keylane_inbox", event_id, %error, "a claim was not renewed");
                }
                Err(lost) => return lost,
            }
        }
    }

    fn key(&self) -> [Value; 3] {
        [
            Value::Exact(self.group.clone()),
            Value::Text(self.taken.token.clone()),
            Value::Exact(self.event_id.clone()),
        ]
    }

    async fn write(&self, call: &'static str, sql: &str, values: Vec<Value>) -> Result<(), ClaimError> {
        match self.inbox.execute(call, sql, values).await? {
            0 => Err(ClaimError::Lost { event_id: self.event_id.clone() }),
            _ => Ok(()),
        }
    }
}

/// The error of a claim as one of any work, because a claim runs none.
fn without_work<E>(error: OnceError<Infallible>) -> OnceError<E> {
    match error {
        OnceError::Work(never) => match never {},
        OnceError::Inbox(error) => OnceError::Inbox(error),
        OnceError::Commit(error) => OnceError::Commit(error),
        OnceError::InProgress { event_id, owner, left } => OnceError::InProgress { event_id, owner, left },
        OnceError::Ended => OnceError::Ended,
        OnceError::NoTransaction => OnceError::NoTransaction,
    }
}
