//! One message: its effect and its row commit together.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    batch::Batch,
    error::{InboxError, OnceError},
    inbox::{Inbox, InboxDatabase},
};

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once<T> {
    /// The message was new. The work has run and returned this.
    Done(T),
    /// The message was consumed before. The work has not run.
    Seen,
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// Runs the work if the message is new, in a transaction of the inbox. The effect of the work and the row that
    /// the message was consumed commit together.
    ///
    /// If the work fails, its effects are rolled back, and FAILED is written with the text of the error in a second
    /// short transaction. The work of a failed message may run again. If the row cannot be written, it is left out.
    ///
    /// # Errors
    /// [`OnceError`].
    ///
    /// # Cancel safety
    /// If it is dropped before the commit, nothing has happened, and the connection is closed, never reused.
    pub async fn run<T, E: std::fmt::Display>(
        &self,
        event_id: &str,
        group: &str,
        work: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, E>,
    ) -> Result<Once<T>, OnceError<E>> {
        let began = Instant::now();
        let ran = self
            .run_batch(&[event_id], group, async move |tx: &mut DB::Connection, _: &[usize]| work(tx).await)
            .await;
        let error = match ran {
            Ok(batch) => return batch.only(event_id),
            Err(error) => error,
        };
        let text = match &error {
            OnceError::Work(error) => Some(error.to_string()),
            OnceError::Ended => Some(error.to_string()),
            _ => None,
        };
        if let Some(text) = text
            && let Err(error) = self.write_failure(event_id, group, &text, began.elapsed()).await
        {
            tracing::warn!(target: "keylane_inbox", event_id, group, %error, "the failure of a message was not written");
        }
        Err(error)
    }

    /// As [`run`](Self::run), in a transaction of the caller's, which sqlx has begun. On SQLite begin it with
    /// `BEGIN IMMEDIATE`.
    ///
    /// The work runs within a savepoint: if it fails, panics or is dropped, its effects are rolled back and the rest
    /// of the transaction stays as it was. The failure is not written, because the transaction may be rolled back, too:
    /// call [`write_failure`](Self::write_failure) after its end.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn run(inbox: keylane_inbox::Inbox<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = inbox.pool().begin().await?;
    /// let paid = inbox
    ///     .once(&mut tx, "event-1", "billing", async |tx| {
    ///         sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 7").execute(tx).await
    ///     })
    ///     .await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OnceError`], except [`OnceError::Commit`].
    ///
    /// # Cancel safety
    /// If it is dropped, its effects are rolled back with the next statement of the connection.
    pub async fn once<T, E>(
        &self,
        conn: &mut DB::Connection,
        event_id: &str,
        group: &str,
        work: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, E>,
    ) -> Result<Once<T>, OnceError<E>> {
        let work = async move |tx: &mut DB::Connection, _: &[usize]| work(tx).await;
        self.once_batch(conn, &[event_id], group, work).await?.only(event_id)
    }

    /// Writes that a message has failed, after the transaction with its effects was rolled back. A message that was
    /// consumed, or that another consumer holds, is left as it is.
    ///
    /// # Errors
    /// [`InboxError`].
    pub async fn write_failure(
        &self,
        event_id: &str,
        group: &str,
        error: &str,
        cost: Duration,
    ) -> Result<(), InboxError> {
        let mut lent = self.begin().await?;
        self.shared.write_failure::<DB>(lent.conn(), group, event_id, error, cost).await?;
        lent.commit().await.map_err(InboxError::of::<DB>("commit"))
    }
}

impl<T> Batch<T> {
    /// The outcome of a batch of one.
    fn only<E>(mut self, event_id: &str) -> Result<Once<T>, OnceError<E>> {
        match (self.done, self.in_progress.pop()) {
            (Some(done), _) => Ok(Once::Done(done)),
            (None, None) => Ok(Once::Seen),
            (None, Some((_, owner, left))) => {
                Err(OnceError::InProgress { event_id: event_id.to_owned(), owner, left })
            }
        }
    }
}
