//! Notifications between processes about commits: a hint that saves the wait for a poll.
//!
//! A notification is sent outside of the user's transactions: inside, their commits would wait for one
//! another.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    commit_wake::CommitWake,
    ownership::Ownership,
    partition::PartitionSet,
    store::{ErrorClass, Notifier, StoreError},
    telemetry::{Observers, Signal},
    vitals::ListenState,
    wake::unhindered,
};

/// The shortest time between two notifications of a process. Commits within it share one notification.
const GAP: Duration = Duration::from_millis(3);
/// The pause after a notification that was not sent, and before the next try to listen.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after an error that only a person can fix.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The time after which an unused notifying connection is closed.
const UNUSED_FOR: Duration = Duration::from_secs(10);

/// The ownership of this process's workers. Set at each join, `None` while they are not in the cluster.
pub(crate) type Owned = Arc<watch::Sender<Option<Ownership>>>;

/// Whether this process owns all partitions, so that no other process delivers. A process that claims a
/// partition later fetches from it at once.
fn is_alone(owned: &Owned) -> bool {
    owned.borrow().as_ref().is_some_and(|ownership| ownership.owned() == PartitionSet::ALL)
}

/// Notifies other processes from a separate task. After the announcer is dropped, the task still sends the
/// last notification.
pub(crate) struct Announcer {
    committed: watch::Sender<()>,
    owned: Owned,
}

impl Announcer {
    /// Starts the task. Returns `None` outside of a runtime.
    pub(crate) fn start(notifier: Arc<dyn Notifier>, owned: Owned, observers: Observers) -> Option<Self> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (committed, mut commits) = watch::channel(());
        runtime.spawn(unhindered(async move {
            let mut absence = Absence::default();
            loop {
                match tokio::time::timeout(UNUSED_FOR, commits.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        notifier.close_idle(UNUSED_FOR / 2).await;
                        continue;
                    }
                }
                let pause = match notifier.notify().await {
                    Ok(()) => absence.over(),
                    Err(error) => absence.report(&observers, &error),
                };
                tokio::time::sleep(pause).await;
            }
        }));
        Some(Self { committed, owned })
    }

    /// Announces a commit. The first of several commits is notified at once, the others together.
    pub(crate) fn announce(&self) {
        // If no other process delivers, the task is not woken: it would compete with the workers for a
        // thread.
        if !is_alone(&self.owned) {
            self.committed.send_replace(());
        }
    }
}

/// Nudges `wake` for each notification of another process. Never ends.
pub(crate) async fn listen(
    notifier: &dyn Notifier,
    wake: &CommitWake,
    listen_state: &ListenState,
    observers: &Observers,
) {
    let mut absence = Absence::default();
    loop {
        let failed = async {
            let mut listener = notifier.listen().await?;
            absence.over();
            listen_state.set(true);
            loop {
                // The nudge also precedes the first notification: a commit may have been announced meanwhile.
                wake.nudge();
                listener.recv().await?;
            }
        };
        let failed: Result<(), StoreError> = failed.await;
        listen_state.set(false);
        let pause = failed.map_or_else(|error| absence.report(observers, &error), |()| PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// Whether the absence of notifications was reported.
#[derive(Default)]
struct Absence {
    told: bool,
}

impl Absence {
    /// A notification has succeeded. Returns the pause until the next notification.
    fn over(&mut self) -> Duration {
        self.told = false;
        GAP
    }

    /// Reports a failure, only once if only a person can fix it. Returns the pause until the next try.
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use async_trait::async_trait;

    use super::*;
    use crate::{
        clock::Clock, instance::Generation, partition::Partition, store::Listener, telemetry::Observer,
    };

    /// Counts how often it notifies.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    #[async_trait]
    impl Notifier for Counting {
        async fn notify(&self) -> Result<(), StoreError> {
            self.0.fetch_add(1, Relaxed);
            Ok(())
        }

        async fn listen(&self) -> Result<Box<dyn Listener>, StoreError> {
            std::future::pending().await
        }

        async fn close_idle(&self, _: Duration) {}
    }

    #[tokio::test(start_paused = true)]
    async fn who_delivers_everything_tells_nobody() {
        let (notifier, owned) = (Arc::new(Counting::default()), Owned::default());
        let announcer = Announcer::start(notifier.clone(), Arc::clone(&owned), Observers::default()).unwrap();
        let notified = async || {
            announcer.announce();
            tokio::time::sleep(2 * GAP).await;
            notifier.0.load(Relaxed)
        };
        assert_eq!(notified().await, 1, "no workers");
        let ownership = Ownership::new(Clock::pausable());
        let all: Vec<_> = Partition::all().map(|partition| (partition, Generation(1))).collect();
        ownership.grant(&all);
        ownership.renew(ownership.clock().now(), Duration::from_secs(10));
        owned.send_replace(Some(ownership.clone()));
        assert_eq!(notified().await, 1, "it owns all");
        ownership.drain(PartitionSet::from_iter([Partition::of("a")]));
        assert_eq!(notified().await, 2, "it is about to give one away");
        ownership.grant(&[(Partition::of("a"), Generation(2))]);
        assert_eq!(notified().await, 2, "it has it again");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(notified().await, 3, "others may have evicted it");
    }

    /// A server on which nobody can notify or listen, until a person changes that.
    #[derive(Default)]
    struct Refusing {
        tries: AtomicUsize,
    }

    impl Refusing {
        fn refused<T>(&self, call: &'static str) -> Result<T, StoreError> {
            self.tries.fetch_add(1, Relaxed);
            Err(StoreError::new(call, ErrorClass::Setup, "not here"))
        }
    }

    #[async_trait]
    impl Notifier for Refusing {
        async fn notify(&self) -> Result<(), StoreError> {
            self.refused("notify")
        }

        async fn listen(&self) -> Result<Box<dyn Listener>, StoreError> {
            self.refused("listen")
        }

        async fn close_idle(&self, _: Duration) {}
    }

    /// The errors with which notifications are absent.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Observer for Told {
        fn on(&self, signal: &Signal) {
            match signal {
                Signal::NotificationsAbsent { error } => self.0.lock().unwrap().push(error.clone()),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_listen_or_notify_says_so_once() {
        let (told, refusing, state) =
            (Arc::new(Told::default()), Arc::new(Refusing::default()), ListenState::default());
        let observers = Observers::new(vec![told.clone()]);
        let wake = CommitWake::default();
        let listening = listen(&*refusing, &wake, &state, &observers);
        assert!(tokio::time::timeout(5 * LONG_PAUSE, listening).await.is_err(), "it tries again for ever");
        assert!(state.is_absent() && (5..=6).contains(&refusing.tries.swap(0, Relaxed)));
        assert_eq!(told.0.lock().unwrap().len(), 1);
        let announcer = Announcer::start(refusing.clone(), Owned::default(), observers).unwrap();
        for _ in 0..5 {
            announcer.announce();
            tokio::time::sleep(LONG_PAUSE).await;
        }
        assert!((4..=5).contains(&refusing.tries.load(Relaxed)));
        assert_eq!(told.0.lock().unwrap().len(), 2, "once for each of the two");
    }
}
