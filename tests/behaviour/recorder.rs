//! Waits for signals and conditions, never for time alone, and never longer than a limit.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use keylane::{Observer, RecordId, Signal};
use tokio::sync::watch;

/// The longest wait, sufficient with twenty processes per core.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Waits for a future that must end.
#[track_caller]
pub(crate) fn bounded<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(LIMIT, future).await {
            Ok(output) => output,
            Err(_) => panic!("{place}: waited {LIMIT:?} for {what}"),
        }
    }
}

/// Asks repeatedly until there is an answer, more and more seldom, for a question costs as much as the work of a case.
pub(crate) async fn eventually<R>(what: &str, mut ask: impl AsyncFnMut() -> Option<R>) -> R {
    let asking = async {
        let mut pause = Duration::from_millis(10);
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(Duration::from_millis(100));
        }
    };
    bounded(what, asking).await
}

/// A list that grows, with waits for its contents.
pub(crate) struct Log<E> {
    entries: Mutex<Vec<E>>,
    length: watch::Sender<usize>,
}

impl<E> Default for Log<E> {
    fn default() -> Self {
        Self { entries: Mutex::new(Vec::new()), length: watch::Sender::new(0) }
    }
}

impl<E: Clone> Log<E> {
    pub(crate) fn push(&self, entry: E) {
        let mut entries = self.entries.lock().unwrap();
        entries.push(entry);
        self.length.send_replace(entries.len());
    }

    pub(crate) fn all(&self) -> Vec<E> {
        self.entries.lock().unwrap().clone()
    }

    /// Waits until `find` finds what is wanted in the list, and returns the result.
    pub(crate) async fn until<R>(&self, what: &str, find: impl Fn(&[E]) -> Option<R>) -> R {
        let mut length = self.length.subscribe();
        let search = async {
            loop {
                length.mark_unchanged();
                if let Some(found) = find(&self.entries.lock().unwrap()) {
                    return found;
                }
                length.changed().await.expect("the sender is here");
            }
        };
        bounded(what, search).await
    }
}

/// An observer that keeps all signals.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Log<Signal>>);

impl Observer for Recorder {
    fn on(&self, signal: &Signal) {
        if std::env::var("TRACE").is_ok() {
            eprintln!("{:?} {signal:?}", tokio::time::Instant::now());
        }
        self.0.push(signal.clone());
    }
}

impl Recorder {
    pub(crate) fn all(&self) -> Vec<Signal> {
        self.0.all()
    }

    /// The results of `pick` for the signals so far. A signal comes some milliseconds after its event, and a
    /// shutdown waits for the signals before it. So read after the shutdown, or wait with `first` or `at_least`.
    pub(crate) fn picked<R>(&self, pick: impl Fn(&Signal) -> Option<R>) -> Vec<R> {
        self.all().iter().filter_map(pick).collect()
    }

    /// Counts the signals so far: see [`picked`](Self::picked).
    pub(crate) fn count(&self, is: impl Fn(&Signal) -> bool) -> usize {
        self.all().iter().filter(|signal| is(signal)).count()
    }

    /// Waits for the first signal that `pick` takes, past ones included.
    pub(crate) async fn first<R>(&self, what: &str, pick: impl Fn(&Signal) -> Option<R>) -> R {
        self.0.until(what, |signals| signals.iter().find_map(&pick)).await
    }

    /// Waits until `count` signals were of this kind.
    pub(crate) async fn at_least(&self, count: usize, what: &str, is: impl Fn(&Signal) -> bool) {
        let enough =
            |signals: &[Signal]| (signals.iter().filter(|signal| is(signal)).count() >= count).then_some(());
        self.0.until(what, enough).await;
    }

    /// Waits for the first record that has failed for good: its id, its attempts, and whether it blocks its
    /// lane.
    pub(crate) async fn failed(&self) -> (RecordId, u32, bool) {
        self.first("a record that has failed", |signal| match signal {
            Signal::RecordFailed { record, attempts, blocked, .. } => Some((*record, *attempts, *blocked)),
            _ => None,
        })
        .await
    }
}
