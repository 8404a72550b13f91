//! The workers in force, those that are about to take over from them, and those that are leaving.
//!
//! New settings take effect like a new version of a service: new workers join the cluster, and only then the old ones
//! finish their work and leave. So no record waits for a start, and none is lost.

use std::sync::Arc;

use keylane::{Finished, Running, ShutdownReport, StartError, tokio_util::sync::CancellationToken};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::database::Opened;

/// The current workers, for health.
pub(crate) type InForce = watch::Receiver<Option<Arc<Running>>>;

/// How the workers have ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// All work under way was finished.
    Graceful,
    /// Work was left after `cluster.graceful_shutdown_timeout`.
    Forced { cancelled: usize },
    /// The first workers could not start.
    NotStarted(StartError),
    /// The workers ended by themselves.
    Died(String),
}

type Started = Result<Running, StartError>;

pub(crate) struct Workers {
    current: Option<(Arc<Running>, CancellationToken)>,
    starting: Option<(JoinHandle<Started>, CancellationToken)>,
    leaving: JoinSet<Ended>,
    in_force: watch::Sender<Option<Arc<Running>>>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        Self { current: None, starting: None, leaving: JoinSet::new(), in_force: watch::Sender::new(None) }
    }

    pub(crate) fn health(&self) -> InForce {
        self.in_force.subscribe()
    }

    /// Begins to start workers. The start waits while the database is away. Workers that were still starting are
    /// dropped.
    pub(crate) fn begin(&mut self, opened: Opened) {
        let Opened { outbox, token } = opened;
        let start = tokio::spawn(async move { outbox.start().await });
        if let Some((unwanted, token)) = self.starting.replace((start, token)) {
            self.leaving.spawn(give_up(unwanted, token));
        }
    }

    /// Returns when the workers in force have ended by themselves, or when there are none and none can start.
    ///
    /// # Cancel safety
    /// Call it again.
    pub(crate) async fn run(&mut self) -> Ended {
        loop {
            tokio::select! {
                started = started(&mut self.starting) => {
                    if let Err(ended) = self.take_over(started).await {
                        return ended;
                    }
                }
                why = finished(self.current.as_ref()) => return why.into(),
                Some(_) = self.leaving.join_next() => {}
            }
        }
    }

    async fn take_over(&mut self, started: Started) -> Result<(), Ended> {
        let Some((_, token)) = self.starting.take() else { return Ok(()) };
        let running = match started {
            Ok(running) => Arc::new(running),
            Err(error) if self.current.is_none() => return Err(Ended::NotStarted(error)),
            Err(error) => {
                let problem = error.to_string();
                tracing::error!(target: "keylane_relay", problem, "the new workers cannot start; the old ones stay");
                return Ok(());
            }
        };
        let instance = running.instance();
        tracing::info!(target: "keylane_relay", %instance, "the relay delivers");
        self.in_force.send_replace(Some(Arc::clone(&running)));
        if let Some((old, token)) = self.current.replace((running, token)) {
            self.leaving.spawn(end(old, token));
        }
        Ok(())
    }

    /// Ends all workers, and waits for those that are leaving.
    pub(crate) async fn stop(&mut self) -> Ended {
        if let Some((starting, token)) = self.starting.take() {
            self.leaving.spawn(give_up(starting, token));
        }
        if let Some((running, token)) = self.current.take() {
            self.leaving.spawn(end(running, token));
        }
        let (mut graceful, mut cancelled) = (true, 0);
        while let Some(ended) = self.leaving.join_next().await {
            match ended {
                Ok(Ended::Graceful | Ended::NotStarted(_)) => {}
                Ok(Ended::Forced { cancelled: more }) => {
                    graceful = false;
                    cancelled += more;
                }
                Ok(Ended::Died(_)) | Err(_) => graceful = false,
            }
        }
        if graceful { Ended::Graceful } else { Ended::Forced { cancelled } }
    }
}

impl From<Finished> for Ended {
    fn from(why: Finished) -> Self {
        match why {
            Finished::Shutdown { report } | Finished::Drained { report } => report.into(),
            Finished::Panicked { error } => Self::Died(error),
            other => Self::Died(format!("{other:?}")),
        }
    }
}

impl From<ShutdownReport> for Ended {
    fn from(report: ShutdownReport) -> Self {
        if report.graceful { Self::Graceful } else { Self::Forced { cancelled: report.cancelled } }
    }
}

async fn started(starting: &mut Option<(JoinHandle<Started>, CancellationToken)>) -> Started {
    match starting {
        Some((start, _)) => start.await.unwrap_or_else(|error| Err(StartError::Thread(error.into()))),
        None => std::future::pending().await,
    }
}

async fn finished(current: Option<&(Arc<Running>, CancellationToken)>) -> Finished {
    match current {
        Some((running, _)) => running.finished().await,
        None => std::future::pending().await,
    }
}

/// Ends workers. If nobody else holds them, waits for their last task.
async fn end(running: Arc<Running>, token: CancellationToken) -> Ended {
    token.cancel();
    let why = running.finished().await;
    if let Some(running) = Arc::into_inner(running) {
        running.shutdown().await;
    }
    why.into()
}

/// Workers that are still starting end at once.
async fn give_up(starting: JoinHandle<Started>, token: CancellationToken) -> Ended {
    token.cancel();
    match starting.await {
        Ok(Ok(running)) => end(Arc::new(running), token).await,
        _ => Ended::Graceful,
    }
}
