//! Many messages in one transaction: one statement takes all of them, and one finishes them.

use std::{collections::HashMap, time::Duration};

use sqlx::Connection;
use sqlx_core::transaction::TransactionManager;
use tokio::time::Instant;

use crate::{
    core::Shared,
    error::{InboxError, OnceError},
    inbox::{Inbox, InboxDatabase},
    take::{Met, Taken},
    templates::Templates,
};

/// The outcome of a batch. Each message is named by its place in the list of ids.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch<T> {
    /// What the work returned; `None` if no message was new.
    pub done: Option<T>,
    /// The messages that were given to the work.
    pub fresh: Vec<usize>,
    /// Messages that were consumed before, and repetitions within the list.
    pub seen: Vec<usize>,
    /// Messages that another consumer holds by [`Inbox::claim`], with the name of the owner and the rest of the
    /// lease: let the broker deliver them again.
    pub in_progress: Vec<(usize, String, Duration)>,
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// Runs the work for those messages of the list that are new, in a transaction of the inbox.
    ///
    /// The work is given the places of the new messages in the list, in ascending order. If the work fails, nothing
    /// of the batch has happened. No failure is written, because the inbox does not know which message was to blame:
    /// run the messages one by one then, by [`run`](Self::run).
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn run(inbox: keylane_inbox::Inbox<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {
    /// let ids = ["event-1", "event-2"];
    /// let batch = inbox
    ///     .run_batch(&ids, "billing", async |tx, fresh| {
    ///         let fresh: Vec<&str> = fresh.iter().map(|place| ids[*place]).collect();
    ///         sqlx::query("INSERT INTO bill (event_id) SELECT unnest($1::text[])").bind(fresh).execute(tx).await
    ///     })
    ///     .await?;
    /// println!("{} were new, {} were not", batch.fresh.len(), batch.seen.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OnceError`]; messages that another consumer holds are left out, without an error.
    ///
    /// # Cancel safety
    /// If it is dropped before the commit, nothing has happened, and the connection is closed, never reused.
    pub async fn run_batch<T, E>(
        &self,
        event_ids: &[&str],
        group: &str,
        work: impl AsyncFnOnce(&mut DB::Connection, &[usize]) -> Result<T, E>,
    ) -> Result<Batch<T>, OnceError<E>> {
        let mut lent = self.begin().await?;
        let taken = self.shared.take::<DB>(lent.conn(), group, event_ids).await?;
        let mut batch = Batch::of(event_ids, &taken);
        if batch.fresh.is_empty() {
            lent.roll_back().await;
            return Ok(batch);
        }
        let began = Instant::now();
        match work(lent.conn(), &batch.fresh).await {
            Ok(done) => batch.done = Some(done),
            Err(error) => {
                lent.roll_back().await;
                return Err(OnceError::Work(error));
            }
        }
        if lent.depth() != 1 || !Shared::is_same::<DB>(lent.conn()).await? {
            return Err(OnceError::Ended);
        }
        if !self.shared.finish::<DB>(lent.conn(), group, &taken, began.elapsed(), true).await? {
            return Err(OnceError::Ended);
        }
        let committed = lent.commit().await.map_err(InboxError::of::<DB>("commit"));
        committed.map_err(OnceError::Commit)?;
        Ok(batch)
    }

    /// As [`run_batch`](Self::run_batch), in a transaction of the caller's, which sqlx has begun. On SQLite begin it
    /// with `BEGIN IMMEDIATE`.
    ///
    /// The work runs within a savepoint. If it fails, panics or is dropped, its effects are rolled back and the rest
    /// of the transaction stays as it was: if the caller commits nevertheless, no half effect is committed.
    ///
    /// # Errors
    /// [`OnceError`], except [`OnceError::Commit`].
    ///
    /// # Cancel safety
    /// If it is dropped, its effects are rolled back with the next statement of the connection.
    pub async fn once_batch<T, E>(
        &self,
        conn: &mut DB::Connection,
        event_ids: &[&str],
        group: &str,
        work: impl AsyncFnOnce(&mut DB::Connection, &[usize]) -> Result<T, E>,
    ) -> Result<Batch<T>, OnceError<E>> {
        if !conn.is_in_transaction() {
            return Err(OnceError::NoTransaction);
        }
        let in_call = |error| OnceError::Inbox(InboxError::of::<DB>("savepoint")(error));
        let mut inner = conn.begin().await.map_err(in_call)?;
        if let Some((set, _)) = Templates::of::<DB>().mark {
            DB::script(&mut inner, set).await.map_err(in_call)?;
        }
        let depth = DB::TransactionManager::get_transaction_depth(&inner);
        let taken = self.shared.take::<DB>(&mut inner, group, event_ids).await?;
        let mut batch = Batch::of(event_ids, &taken);
        if batch.fresh.is_empty() {
            inner.rollback().await.map_err(in_call)?;
            return Ok(batch);
        }
        let began = Instant::now();
        match work(&mut inner, &batch.fresh).await {
            Ok(done) => batch.done = Some(done),
            Err(error) => {
                inner.rollback().await.map_err(in_call)?;
                return Err(OnceError::Work(error));
            }
        }
        let nested = DB::TransactionManager::get_transaction_depth(&inner) != depth;
        if nested || !Shared::is_same::<DB>(&mut inner).await? {
            return Err(OnceError::Ended);
        }
        if !self.shared.finish::<DB>(&mut inner, group, &taken, began.elapsed(), true).await? {
            return Err(OnceError::Ended);
        }
        inner.commit().await.map_err(in_call)?;
        Ok(batch)
    }
}

impl<T> Batch<T> {
    fn of(ids: &[&str], taken: &Taken) -> Self {
        let met: HashMap<&str, &Met> = taken.met.iter().map(|(id, met)| (id.as_str(), met)).collect();
        let mut batch = Self {
            done: None,
            fresh: Vec::with_capacity(taken.ours.len()),
            seen: Vec::new(),
            in_progress: Vec::new(),
        };
        let mut before = std::collections::HashSet::new();
        for (place, id) in ids.iter().enumerate() {
            match met.get(id) {
                Some(Met::Busy { owner, left }) => batch.in_progress.push((place, owner.clone(), *left)),
                Some(Met::Seen) => batch.seen.push(place),
                None if before.insert(id) => batch.fresh.push(place),
                None => batch.seen.push(place),
            }
        }
        batch
    }
}
