//! Telling other processes of commits, and hearing of theirs: a hint that saves the wait for a poll.
//!
//! It is sent outside the user's transactions: inside, it would make their commits wait for one another.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    store::{Bell, ErrorClass, StoreError},
    telemetry::{Observers, Signal},
    wake::Wake,
};

/// The least time between two notifications of a process: what is committed in between shares one.
const GAP: Duration = Duration::from_millis(5);
/// The pause after one that could not be sent, and before the next try to listen.
const PAUSE: Duration = Duration::from_secs(1);
/// The same where only a person can mend it.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// A connection that has not told anything for so long is closed.
const UNUSED_FOR: Duration = Duration::from_secs(30);

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
            let mut absence = Absence::default();
            loop {
                match tokio::time::timeout(UNUSED_FOR, commits.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        bell.rest(UNUSED_FOR / 2).await;
                        continue;
                    }
                }
                let pause = match bell.ring().await {
                    Ok(()) => absence.over(),
                    Err(error) => absence.report(&observers, &error),
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
    let mut absence = Absence::default();
    loop {
        let failed = async {
            let mut listener = bell.listen().await?;
            absence.over();
            loop {
                // Also before the first: something may have been announced meanwhile.
                wake.nudge();
                listener.heard().await?;
            }
        };
        let failed: Result<(), StoreError> = failed.await;
        let pause = failed.map_or_else(|error| absence.report(observers, &error), |()| PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// Whether it was said that notifications cannot work here.
#[derive(Default)]
struct Absence {
    told: bool,
}

impl Absence {
    /// It works. The pause until the next.
    fn over(&mut self) -> Duration {
        self.told = false;
        GAP
    }

    /// It does not: said once where only a person can mend it. The pause until the next try.
    fn report(&mut self, observers: &Observers, error: &StoreError) -> Duration {
        if !matches!(error.class, ErrorClass::Setup | ErrorClass::WrongNode | ErrorClass::Record) {
            observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            return PAUSE;
        }
        if !std::mem::replace(&mut self.told, true) {
            observers.emit(Signal::NotificationsAbsent { error: error.chain() });
        }
        LONG_PAUSE
    }
}
