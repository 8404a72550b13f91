//! The one connection of a client that listens for tickets that have gone.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use sqlx::{
    PgPool, Postgres,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{task::AbortHandle, time::timeout};

use crate::{
    database::Wake,
    rules::POLL_INTERVAL,
    signals::{Ear, Ears},
};

/// What notifications are sent on; the payload is the ticket.
const CHANNEL: &str = "keylane_lock";
/// How long a client waits for its own first notification.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// The pause after a session that could not listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Listens from the first wait on.
#[derive(Debug)]
pub struct Listener {
    direct: PgPool,
    pool: PgPool,
    ears: Arc<Ears>,
    is_live: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

impl Wake<Postgres> for Listener {
    fn new(direct: &PgPool, pool: &PgPool, ears: Arc<Ears>) -> Self {
        let (direct, pool) = (direct.clone(), pool.clone());
        Self { direct, pool, ears, is_live: Arc::default(), task: Mutex::default() }
    }

    async fn wait(&self, ear: &Ear, _: &str, longest: Duration) {
        self.start();
        let longest = if self.is_live.load(SeqCst) { longest } else { longest.min(POLL_INTERVAL) };
        ear.rung(longest).await;
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
            ears: Arc::clone(&self.ears),
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
    ears: Arc<Ears>,
    is_live: Arc<AtomicBool>,
}

impl Drop for Sessions {
    /// Nobody listens any more, whatever has ended the task.
    fn drop(&mut self) {
        self.is_live.store(false, SeqCst);
        self.ears.ring_all();
    }
}

impl Sessions {
    async fn run(self) {
        let mut has_told = false;
        loop {
            let ended = self.session().await;
            self.is_live.store(false, SeqCst);
            self.ears.ring_all();
            match ended {
                Ok(true) => {
                    has_told = false;
                    continue;
                }
                // Once until it gets better: this may last as long as the process.
                Ok(false) | Err(_) if has_told => {}
                Ok(false) => tracing::warn!(
                    target: "keylane_lock",
                    "no notification arrives: waiters ask every {POLL_INTERVAL:?}; behind a pooler in transaction \
                     mode, give LockClientBuilder::signal_pool an address without it"
                ),
                Err(error) => {
                    tracing::warn!(target: "keylane_lock", %error, "cannot listen for notifications")
                }
            }
            has_told = true;
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Listens until the connection is lost. `false` if no notification gets through.
    async fn session(&self) -> Result<bool, sqlx::Error> {
        // A pool of its own: the user's pool would lack the connection.
        let own = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let own = own.connect_lazy_with((*self.direct.connect_options()).clone());
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen(CHANNEL).await?;
        let probe = uuid::Uuid::now_v7().simple().to_string();
        sqlx::query("SELECT pg_notify($1, $2)")
            .persistent(false)
            .bind(CHANNEL)
            .bind(&probe)
            .execute(&self.pool)
            .await?;
        let arrived = async {
            while let Some(told) = listener.try_recv().await? {
                if told.payload() == probe {
                    return Ok(true);
                }
            }
            Ok::<_, sqlx::Error>(false)
        };
        if !timeout(PROBE_LIMIT, arrived).await.unwrap_or(Ok(false))? {
            listener.unlisten_all().await?;
            return Ok(false);
        }
        // Whoever looked before this connection listened looks once more.
        self.is_live.store(true, SeqCst);
        self.ears.ring_all();
        while let Some(told) = listener.try_recv().await? {
            self.ears.gone(told.payload());
        }
        Ok(true)
    }
}
