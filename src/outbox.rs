//! The outbox: the value that a service holds.

mod deploy;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use uuid::Uuid;

use crate::{
    admin::Admin,
    claiming,
    config::Config,
    database::Database,
    parts::Parts,
    readiness::StartError,
    record::{Named, OutboxEvent},
    running::Running,
    runtime,
    schedule::{RawEvent, ScheduleError, ScheduleOptions, Scheduled},
    store::{Mode, StoreError},
};

/// An outbox in one database: schedules records in the user's transactions, and starts the workers that
/// deliver them. Cheap to clone. A process may have several.
pub struct Outbox<DB: Database> {
    pub(crate) inner: Arc<Parts<DB>>,
}

impl<DB: Database> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// Why [`Outbox::transaction`] did not commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError<E> {
    /// The transaction could not be opened, and the work was not run.
    #[error("transaction could not begin: {0}")]
    Begin(StoreError),
    /// The work failed, and the transaction was rolled back.
    #[error("the work in the transaction failed: {0}")]
    Work(E),
    /// The commit failed or its reply was lost: the transaction may be committed or not.
    #[error("whether the commit happened is not known: {0}")]
    Commit(StoreError),
}

impl<DB: Database> Outbox<DB> {
    /// Schedules an event in the user's transaction: the event is delivered if and only if the transaction
    /// commits.
    ///
    /// Writes one record per handler of the type. Call [`wake`](Self::wake) after the commit; otherwise the
    /// record waits for the next poll.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let mut tx = pool.begin().await?;
    /// // Your own statements go here, on the same transaction.
    /// let scheduled = outbox.schedule(&mut tx, &OrderPlaced { id: 42 }).await?;
    /// tx.commit().await?;
    /// outbox.wake();
    /// assert_eq!(scheduled.records, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError`], before anything is written unless the database refused.
    ///
    /// # Cancel safety
    /// As the user's own statements on that connection: roll the transaction back.
    pub async fn schedule<E: OutboxEvent>(
        &self,
        conn: &mut DB::Connection,
        event: &E,
    ) -> Result<Scheduled, ScheduleError> {
        self.schedule_with(conn, event, ScheduleOptions::new()).await
    }

    /// Does as [`schedule`](Self::schedule), with headers, a due time, an event id or a dedup key.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let options = ScheduleOptions::new().trace_id("4bf92f35").dedup_key("request-17");
    /// outbox.transaction(async |tx| outbox.schedule_with(tx, &OrderPlaced { id: 42 }, options).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule_with<E: OutboxEvent>(
        &self,
        conn: &mut DB::Connection,
        event: &E,
        options: ScheduleOptions,
    ) -> Result<Scheduled, ScheduleError> {
        self.schedule_raw(conn, RawEvent::encode(event)?, options).await
    }

    /// Does as [`schedule`](Self::schedule), and delivers not before `time` of the database's clock.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let morning = SystemTime::now() + Duration::from_secs(8 * 3_600);
    /// outbox.transaction(async |tx| outbox.schedule_at(tx, &OrderPlaced { id: 42 }, morning).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule_at<E: OutboxEvent>(
        &self,
        conn: &mut DB::Connection,
        event: &E,
        time: SystemTime,
    ) -> Result<Scheduled, ScheduleError> {
        self.schedule_with(conn, event, ScheduleOptions::new().at(time)).await
    }

    /// Does as [`schedule`](Self::schedule), and delivers after a delay by the database's clock.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let week = Duration::from_secs(7 * 24 * 3_600);
    /// outbox.transaction(async |tx| outbox.schedule_after(tx, &OrderPlaced { id: 42 }, week).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule_after<E: OutboxEvent>(
        &self,
        conn: &mut DB::Connection,
        event: &E,
        delay: Duration,
    ) -> Result<Scheduled, ScheduleError> {
        self.schedule_with(conn, event, ScheduleOptions::new().after(delay)).await
    }

    /// Schedules many events in few statements, in the given order.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let orders = [41, 42, 43].map(|id| OrderPlaced { id });
    /// let scheduled = outbox.transaction(async |tx| outbox.schedule_all(tx, &orders).await).await?;
    /// assert_eq!(scheduled.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule_all<'e, E: OutboxEvent>(
        &self,
        conn: &mut DB::Connection,
        events: impl IntoIterator<Item = &'e E>,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let events = events.into_iter().map(RawEvent::encode).collect::<Result<Vec<_>, _>>()?;
        self.inner.scheduler.schedule(conn, events, &ScheduleOptions::new()).await
    }

    /// Schedules an encoded event.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let event = RawEvent::new("order.placed", "order-42", r#"{"id":42}"#);
    /// outbox.transaction(async |tx| outbox.schedule_raw(tx, event, ScheduleOptions::new()).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule_raw(
        &self,
        conn: &mut DB::Connection,
        event: RawEvent,
        options: ScheduleOptions,
    ) -> Result<Scheduled, ScheduleError> {
        let scheduled = self.inner.scheduler.schedule(conn, vec![event], &options).await?;
        let none = || Scheduled { event_id: Uuid::nil(), records: 0, duplicate: false };
        Ok(scheduled.into_iter().next().unwrap_or_else(none))
    }

    /// Cancels an event that is not due yet, in the user's transaction: if the transaction commits, the event
    /// is not delivered. Returns the number of cancelled records, one per handler.
    ///
    /// 0 means that there was nothing to cancel, and nothing is changed: the event is due, was tried before,
    /// was delivered, has failed, or was never scheduled under this key. If the event was scheduled with a
    /// dedup key, the dedup key is free again. If another transaction cancels the same event, the call waits
    /// for its end. In a transaction that is REPEATABLE READ, the default of MySQL and MariaDB, an event is not
    /// found if it was committed after the first read of the transaction.
    ///
    /// ```
    /// # use keylane::{Outbox, ScheduleError, memory::{Memory, MemoryConnection}};
    /// # async fn pay(
    /// #     outbox: &Outbox<Memory>,
    /// #     tx: &mut MemoryConnection,
    /// #     reminder: uuid::Uuid,
    /// # ) -> Result<(), ScheduleError> {
    /// // The key and the id of the event, as `schedule_after` has returned it.
    /// if outbox.cancel(tx, "order-42", reminder).await? == 0 {
    ///     // The reminder is under way, or was sent.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A [`ScheduleError`] about the key, the transaction or the database.
    pub async fn cancel(
        &self,
        conn: &mut DB::Connection,
        key: &str,
        event_id: Uuid,
    ) -> Result<u64, ScheduleError> {
        self.inner.scheduler.cancel(conn, key, Named::Event(event_id)).await
    }

    /// Does as [`cancel`](Self::cancel), by the dedup key with which the event was scheduled for later.
    ///
    /// ```
    /// # use keylane::{Outbox, ScheduleError, memory::{Memory, MemoryConnection}};
    /// # async fn pay(outbox: &Outbox<Memory>, tx: &mut MemoryConnection) -> Result<(), ScheduleError> {
    /// outbox.cancel_dedup_key(tx, "order-42", "reminder-of-order-42").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`cancel`](Self::cancel).
    pub async fn cancel_dedup_key(
        &self,
        conn: &mut DB::Connection,
        key: &str,
        dedup_key: impl Into<String>,
    ) -> Result<u64, ScheduleError> {
        self.inner.scheduler.cancel(conn, key, Named::DedupKey(dedup_key.into())).await
    }

    /// Runs work in a transaction of the pool, commits it and wakes the workers of this process.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let order = OrderPlaced { id: 42 };
    /// outbox
    ///     .transaction(async |tx| {
    ///         tx.push_effect("INSERT INTO orders …"); // your own statements, on a real database
    ///         outbox.schedule(tx, &order).await
    ///     })
    ///     .await?;
    /// assert_eq!(pool.effects(), ["INSERT INTO orders …"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactionError`]; the work's own error rolls everything back. If that error has a type of its own
    /// (not `Box<dyn Error>`), `?` works on the result.
    ///
    /// # Cancel safety
    /// If it is dropped before the commit, nothing is written, and the connection is closed, never reused.
    pub async fn transaction<T, E>(
        &self,
        work: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, E>,
    ) -> Result<T, TransactionError<E>> {
        let mut tx = DB::begin(&self.inner.pool).await.map_err(TransactionError::Begin)?;
        let done = work(&mut tx).await.map_err(TransactionError::Work)?;
        DB::commit(tx).await.map_err(TransactionError::Commit)?;
        self.wake();
        Ok(done)
    }

    /// Wakes the workers of this process and, with `database.notifications`, those of other processes,
    /// because there may be work. The call is cheap: many calls count as one.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let mut tx = pool.begin().await?;
    /// outbox.schedule(&mut tx, &OrderPlaced { id: 42 }).await?;
    /// tx.commit().await?;
    /// outbox.wake(); // after the commit: before it, there is nothing to find
    /// # Ok(())
    /// # }
    /// ```
    pub fn wake(&self) {
        // What is woken last runs first on this thread.
        if let Some(announcer) = &self.inner.announcer {
            announcer.announce();
        }
        self.inner.wake.nudge();
    }

    /// Joins the cluster, unless the mode is claimed, and starts to deliver. If the database is unreachable, waits
    /// and tries again with growing pauses.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let running = outbox.start().await?;
    /// // … until the service ends …
    /// running.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartError`] for what waiting cannot fix.
    pub async fn start(&self) -> Result<Running, StartError> {
        match self.inner.config.mode {
            Mode::Partitioned => runtime::start(&self.inner).await,
            Mode::Claimed => claiming::start(&self.inner).await,
        }
    }

    /// The administration of the outbox: instances, stopped lanes, failed records.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// for instance in outbox.admin().instances(100).await? {
    ///     println!("{} owns {} partitions", instance.name, instance.partitions);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn admin(&self) -> Admin {
        let Parts { store, config, wake, announcer, .. } = &*self.inner;
        Admin {
            store: Arc::clone(store),
            retention: config.retention.clone(),
            wake: wake.clone(),
            announcer: announcer.clone(),
        }
    }

    /// The settings of the outbox.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }
}
