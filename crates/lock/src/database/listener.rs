//! The one connection of a client that listens for tickets that have gone.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, PgPool, Postgres,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::sessions;
use crate::{
    database::{LockDatabase, Wake},
    rules::POLL_INTERVAL,
    signals::{Waiter, Waiters},
};

/// The channel of the notifications; the payload is the ticket.
const CHANNEL: &str = "keylane_lock";
/// How long the test of an address and the opening of a session may take.
const OPENING_LIMIT: Duration = Duration::from_secs(30);
/// How long a client waits for its own first notification.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// The pause after a session that could not listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Listens from the first wait on.
#[derive(Debug)]
pub struct Listener {
    direct: PgPool,
    pool: PgPool,
    waiters: Arc<Waiters>,
    is_live: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

impl LockDatabase for Postgres {
    type Wake = Listener;
}

impl Wake<Postgres> for Listener {
    fn new(direct: &PgPool, pool: &PgPool, waiters: Arc<Waiters>) -> Self {
        let (direct, pool) = (direct.clone(), pool.clone());
        Self { direct, pool, waiters, is_live: Arc::default(), task: Mutex::default() }
    }

    async fn wait(&self, waiter: &Waiter, _: &str, longest: Duration) {
        self.start();
        let longest = if self.is_live.load(SeqCst) { longest } else { longest.min(POLL_INTERVAL) };
        waiter.notified(longest).await;
    }
}

impl Listener {
    /// Starts the task, unless it runs.
    fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let sessions = Sessions {
            direct: self.direct.clone(),
            pool: self.pool.clone(),
            waiters: Arc::clone(&self.waiters),
            is_live: Arc::clone(&self.is_live),
        };
        *task = Some(tokio::spawn(sessions.run()).abort_handle());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// One session after another.
struct Sessions {
    direct: PgPool,
    pool: PgPool,
    waiters: Arc<Waiters>,
    is_live: Arc<AtomicBool>,
}

/// Why no notification comes.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error(
        "the address leads through a pooler that does not keep sessions: give LockClientBuilder::signal_pool one without"
    )]
    Pooled,
    #[error("no notification arrives: the address for signals must lead to the database of the locks")]
    Deaf,
    #[error("no answer within {OPENING_LIMIT:?}")]
    Late,
    #[error(transparent)]
    Failed(#[from] sqlx::Error),
}

impl Drop for Sessions {
    /// The listener has ended, for any reason.
    fn drop(&mut self) {
        self.fall_silent();
    }
}

impl Sessions {
    async fn run(self) {
        let mut has_told = false;
        loop {
            let ended = self.session().await;
            self.fall_silent();
            let Err(silence) = ended else {
                has_told = false;
                continue;
            };
            // Only once until it works again, because this may last as long as the process.
            if !has_told {
                tracing::warn!(target: "keylane_lock", %silence, "no signals: waiters ask every {POLL_INTERVAL:?}");
                has_told = true;
            }
            match silence {
                Silence::Pooled => std::future::pending().await,
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    fn fall_silent(&self) {
        self.is_live.store(false, SeqCst);
        self.waiters.notify_all();
    }

    /// Listens until the connection is lost.
    async fn session(&self) -> Result<(), Silence> {
        let mut listener = timeout(OPENING_LIMIT, self.open()).await.unwrap_or(Err(Silence::Late))?;
        self.is_live.store(true, SeqCst);
        // Nobody was told of the tickets that have gone in between. A waiter that has read the queue before reads it
        // again.
        self.waiters.notify_all();
        while let Some(told) = listener.try_recv().await? {
            self.waiters.gone(told.payload());
        }
        Ok(())
    }

    /// A connection that listens, as one notification has shown.
    async fn open(&self) -> Result<PgListener, Silence> {
        let options = self.direct.connect_options();
        if !sessions::are_kept(&options).await? {
            return Err(Silence::Pooled);
        }
        // A pool of its own: the user's pool would lack the connection.
        let own = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let mut listener = PgListener::connect_with(&own.connect_lazy_with((*options).clone())).await?;
        // The next connection may lead elsewhere, and is tested before it listens.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        let probe = uuid::Uuid::now_v7().simple().to_string();
        // As text, which any pooler passes on; the probe is made of hexadecimal digits.
        let notify = AssertSqlSafe(format!("SELECT pg_notify('{CHANNEL}', '{probe}')"));
        sqlx::raw_sql(notify).execute(&self.pool).await?;
        let arrived = async {
            while let Some(told) = listener.try_recv().await? {
                if told.payload() == probe {
                    return Ok(());
                }
            }
            Err(Silence::Deaf)
        };
        timeout(PROBE_LIMIT, arrived).await.unwrap_or(Err(Silence::Deaf))?;
        Ok(listener)
    }
}
