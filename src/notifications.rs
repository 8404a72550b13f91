//! Telling other processes of commits, and hearing of theirs: a hint that saves the wait for a poll.
//!
//! It is sent outside the user's transactions: inside, it would make their commits wait for one another.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    store::{Bell, StoreError},
    telemetry::{Observers, Signal},
    wake::Wake,
};

/// The least time between two notifications of a process: what is committed in between shares one.
const GAP: Duration = Duration::from_millis(5);
/// The pause after one that could not be sent, and before the next try to listen.
const PAUSE: Duration = Duration::from_secs(1);

/// Notifies the other processes, from a task of its own. The task tells of the last commit, too, after
/// this is dropped.
pub(crate) struct Announcer {
    committed: watch::Sender<()>,
}

impl Announcer {
    /// `None` outside a runtime.
    pub(crate) fn start(bell: Arc<dyn Bell>, observers: Observers) -> Option<Self> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (committed, mut commits) = watch::channel(());
        runtime.spawn(async move {
            while commits.changed().await.is_ok() {
                let pause = match bell.ring().await {
                    Ok(()) => GAP,
                    Err(error) => {
                        report(&observers, &error);
                        PAUSE
                    }
                };
                tokio::time::sleep(pause).await;
            }
        });
        Some(Self { committed })
    }

    /// Something was committed: the first of several is told at once, the others together.
    pub(crate) fn announce(&self) {
        self.committed.send_replace(());
    }
}

/// Nudges `wake` whenever another process has announced something. Never ends.
pub(crate) async fn listen(bell: &dyn Bell, wake: &Wake, observers: &Observers) {
    loop {
        let failed = async {
            let mut listener = bell.listen().await?;
            loop {
                // Also before the first: something may have been announced meanwhile.
                wake.nudge();
                listener.heard().await?;
            }
        };
        let failed: Result<(), StoreError> = failed.await;
        if let Err(error) = failed {
            report(observers, &error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn report(observers: &Observers, error: &StoreError) {
    observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
}
