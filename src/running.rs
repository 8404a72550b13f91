//! Running workers, as their service holds them.

use std::{convert::Infallible, time::Duration};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    commit_wake::CommitWake,
    health::Health,
    instance::InstanceId,
    notifications::Owned,
    telemetry::{Observers, Signal},
    ticker::Ticker,
    unwind::outlived,
    wake::unhindered,
};

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Whether all work in flight was finished and handed over in time.
    pub graceful: bool,
    /// The number of records in flight whose handlers were cancelled or not called. Another instance delivers
    /// them again.
    pub cancelled: usize,
}

/// Why the workers have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The service has shut the workers down.
    Shutdown {
        /// The result of the shutdown.
        report: ShutdownReport,
    },
    /// A person has drained this instance: see [`Admin::drain`](crate::admin::Admin::drain).
    Drained {
        /// The result of the shutdown.
        report: ShutdownReport,
    },
    /// A panic has ended the workers. Other instances take over after `cluster.stale_instance_timeout`.
    Panicked {
        /// The text of the panic.
        error: String,
    },
    /// The workers were to join again after an eviction, and the system could not start the thread of the
    /// heartbeat.
    NoThread {
        /// The error of the system.
        error: String,
    },
    /// The workers were dropped, or their runtime has ended.
    Dropped,
}

/// The workers of an outbox. Dropping it stops them at once, as a crash would: the other instances take over
/// after `cluster.stale_instance_timeout`, and the log says so. [`shutdown`](Self::shutdown) hands over at
/// once.
#[must_use = "dropping this stops delivery at once: keep it, and call `shutdown` in the end"]
pub struct Running {
    /// Receives the signal if this is dropped while the workers run.
    observers: Observers,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    finished: watch::Receiver<Option<Finished>>,
    instance: watch::Receiver<InstanceId>,
    /// The ownership of the workers, while they are in the cluster. Set by the runtime.
    owned: Owned,
    poll_interval: Duration,
}

/// The means to control the workers from outside.
pub(crate) struct Controls {
    /// Stops the workers when it is cancelled.
    pub(crate) token: CancellationToken,
    /// Stops the workers when it is set to true.
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) instance: watch::Receiver<InstanceId>,
    pub(crate) owned: Owned,
    /// Wakes the workers after commits.
    pub(crate) wake: CommitWake,
    pub(crate) poll_interval: Duration,
}

impl Running {
    /// Runs the work on a separate task until it ends.
    pub(crate) fn spawn(
        work: impl Future<Output = Finished> + Send + 'static,
        controls: Controls,
        observers: Observers,
    ) -> Self {
        let Controls { token, stop, instance, owned, wake, poll_interval } = controls;
        let (tell, finished) = watch::channel(None);
        let asked = ask(token, stop.clone());
        // Without the thread only handlers that block do harm, so the workers do without it if they must.
        let ticker = Ticker::start(wake.clone()).ok();
        let relay = AbortOnDropHandle::new(tokio::spawn(wake.relay()));
        let work = async move {
            let _beside = (ticker, relay);
            tokio::select! {
                biased;
                never = asked => match never {},
                reason = work => reason,
            }
        };
        let (told, who) = (observers.clone(), instance.clone());
        let task = tokio::spawn(async move {
            let reason =
                outlived(unhindered(work)).await.unwrap_or_else(|error| Finished::Panicked { error });
            if let Finished::Panicked { error } | Finished::NoThread { error } = &reason {
                told.emit(Signal::WorkersDied { instance: *who.borrow(), error: error.clone() });
            }
            told.flush().await;
            tell.send_replace(Some(reason));
        });
        Self { observers, stop, task, finished, instance, owned, poll_interval }
    }

    /// Finishes the work in flight, hands the partitions over and leaves, within
    /// `cluster.graceful_shutdown_timeout`. Then cancels the rest.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let running = outbox.start().await?;
    /// let report = running.shutdown().await;
    /// assert!(report.graceful && report.cancelled == 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(mut self) -> ShutdownReport {
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
        match self.finished().await {
            Finished::Shutdown { report } | Finished::Drained { report } => report,
            _ => ShutdownReport { graceful: false, cancelled: 0 },
        }
    }

    /// Waits until the workers have ended, and returns the reason. A service that waits only for its requests
    /// does not learn that its workers have ended: wait for this future, too, with `select!`. The future
    /// holds nothing of `self`. Several callers may wait, before and after the end.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let running = outbox.start().await?;
    /// # let requests = tokio::time::sleep(Duration::from_millis(1));
    /// tokio::select! {
    ///     () = requests => {} // the other work of the service
    ///     why = running.finished() => eprintln!("the workers have ended: {why:?}"),
    /// }
    /// running.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn finished(&self) -> impl Future<Output = Finished> + Send + use<> {
        let mut finished = self.finished.clone();
        async move {
            let reason = finished.wait_for(Option::is_some).await;
            reason.ok().and_then(|reason| reason.clone()).unwrap_or(Finished::Dropped)
        }
    }

    /// The health of the workers, without a query. A readiness page may call it for every request.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let running = outbox.start().await?;
    /// let health = running.health();
    /// assert!(health.live, "{}", health.state);
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        let finished = self.finished.borrow();
        let ended = finished.is_some() || self.task.is_finished();
        let asked = matches!(&*finished, Some(Finished::Shutdown { .. } | Finished::Drained { .. }));
        let session = self.owned.borrow();
        let session = session.as_ref().filter(|_| !ended);
        Health::of((asked || !ended, ended || *self.stop.borrow()), session, self.poll_interval)
    }

    /// The id of this process in the cluster. It changes after an eviction.
    pub fn instance(&self) -> InstanceId {
        *self.instance.borrow()
    }
}

/// Stops the workers when the token is cancelled. Never ends.
async fn ask(token: CancellationToken, stop: watch::Sender<bool>) -> Infallible {
    token.cancelled().await;
    stop.send_replace(true);
    std::future::pending().await
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.task.is_finished() {
            self.task.abort();
            self.observers.emit(Signal::WorkersDropped { instance: self.instance() });
            // The process may end next.
            self.observers.flush_blocking();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(work: impl Future<Output = Finished> + Send + 'static) -> Running {
        let controls = Controls {
            token: CancellationToken::new(),
            stop: watch::Sender::new(false),
            instance: watch::channel(InstanceId::generate()).1,
            owned: Owned::default(),
            wake: CommitWake::default(),
            poll_interval: Duration::from_secs(1),
        };
        Running::spawn(work, controls, Observers::default())
    }

    #[tokio::test]
    async fn workers_that_die_tell_why() {
        let died = workers(async { panic!("of a fault of ours") });
        let Finished::Panicked { error } = died.finished().await else { panic!("they have died") };
        assert_eq!(error, "panicked: of a fault of ours");
        assert!(!died.shutdown().await.graceful);
    }

    #[tokio::test]
    async fn workers_that_are_dropped_tell_so() {
        let finished = workers(std::future::pending()).finished();
        assert!(matches!(finished.await, Finished::Dropped));
    }
}
