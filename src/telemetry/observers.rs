//! The observers of an outbox. Each has a thread of its own, so that one that blocks stops neither the workers nor
//! another observer.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
        mpsc::channel,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::mpsc::{
        self,
        error::{TryRecvError, TrySendError},
    },
};

use super::{Observer, Signal};
use crate::unwind::caught;

/// The number of signals that may wait for one observer. A signal takes about 200 bytes, one with the text of an
/// error up to 1,200 bytes more.
const LONGEST_QUEUE: usize = 16_384;
/// How long the workers wait at most until the observers have got a signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// While signals come, a thread looks for them so often. To wake it for each signal would take up to 0.1 ms of the
/// delivery of a record (two cores, `bench latency`).
const LOOK: Duration = Duration::from_millis(5);
/// After these many looks for nothing, the thread sleeps until the next signal wakes it.
const LOOKS: u32 = 10;

/// The observers of one outbox.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<Vec<Outlet>>);

/// One observer.
struct Outlet {
    observer: Arc<dyn Observer>,
    /// The queue of the observer's thread. Set anew by each `separate`, whose thread waits for the end of the one before.
    queue: Mutex<Option<Queue>>,
    /// The number of signals that were dropped because the queue was full. Counted by `push`.
    dropped: AtomicU64,
}

/// The way to an observer's thread. Dropping it ends the thread, after the entries that wait.
struct Queue {
    /// Both are taken by `end`.
    entries: Option<mpsc::Sender<Entry>>,
    thread: Option<JoinHandle<()>>,
    /// Whether the thread sleeps until it is woken. Set by the thread, cleared by whoever wakes it.
    asleep: Arc<AtomicBool>,
}

/// An entry of an observer's queue.
enum Entry {
    Signal(Arc<Signal>),
    /// Dropped when the observer has got all signals before it.
    Mark(Box<dyn Send>),
}

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        let outlet = |observer| Outlet { observer, queue: Mutex::default(), dropped: AtomicU64::default() };
        Self(Arc::new(observers.into_iter().map(outlet).collect()))
    }

    /// From now on each observer is called from a thread of its own, within the current runtime. An observer for
    /// which the system starts no thread is called from those of the workers.
    pub(crate) fn separate(&self) {
        self.0.iter().for_each(|outlet| outlet.separate(LONGEST_QUEUE));
    }

    /// Tells all observers, without waiting for those that have a thread of their own.
    pub(crate) fn emit(&self, signal: Signal) {
        let signal = Arc::new(signal);
        for (number, outlet) in self.0.iter().enumerate() {
            let Some(signals) = outlet.push(&signal) else { continue };
            let told = Arc::new(Signal::SignalsDropped { signals });
            for (_, other) in self.0.iter().enumerate().filter(|(other, _)| *other != number) {
                other.push(&told);
            }
        }
    }

    /// Waits until the observers have got what was emitted before, or for [`PATIENCE`].
    pub(crate) async fn flush(&self) {
        let (mark, mut reached) = mpsc::channel::<Infallible>(1);
        self.mark(mark);
        let _ = tokio::time::timeout(PATIENCE, reached.recv()).await;
    }

    /// Waits like [`flush`](Self::flush), but blocks the thread.
    pub(crate) fn flush_blocking(&self) {
        let (mark, reached) = channel::<Infallible>();
        self.mark(mark);
        let _ = reached.recv_timeout(PATIENCE);
    }

    /// Puts a copy of the mark behind the signals of each queue that is not full. An observer that has got the
    /// signals before it drops its copy.
    fn mark(&self, mark: impl Clone + Send + 'static) {
        for outlet in self.0.iter() {
            if let Some(queue) = &*outlet.queue() {
                let _ = queue.push(Entry::Mark(Box::new(mark.clone())));
            }
        }
    }
}

impl Outlet {
    fn queue(&self) -> MutexGuard<'_, Option<Queue>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn separate(&self, longest_queue: usize) {
        let (observer, runtime) = (Arc::clone(&self.observer), Handle::current());
        let (sender, entries) = mpsc::channel(longest_queue);
        let asleep = Arc::new(AtomicBool::new(false));
        let sleeps = Arc::clone(&asleep);
        let builder = thread::Builder::new().name("keylane-observer".to_owned());
        let mut queue = self.queue();
        let before = queue.as_mut().and_then(Queue::end);
        let started = builder.spawn(move || {
            if let Some(before) = before {
                let _ = before.join();
            }
            call_for_each(&*observer, &runtime, entries, &sleeps);
        });
        *queue = started.ok().map(|thread| Queue { entries: Some(sender), thread: Some(thread), asleep });
    }

    /// Returns the number of signals that were dropped for this observer, if it is to be told now.
    fn push(&self, signal: &Arc<Signal>) -> Option<u64> {
        let sent = self.queue().as_ref().map(|queue| queue.push(Entry::Signal(Arc::clone(signal))));
        match sent {
            None => call(&*self.observer, signal),
            Some(Err(TrySendError::Full(_))) => {
                let dropped = self.dropped.fetch_add(1, Relaxed) + 1;
                return dropped.is_power_of_two().then_some(dropped);
            }
            // The thread ends only after its queue has been taken away.
            Some(Ok(()) | Err(TrySendError::Closed(_))) => {}
        }
        None
    }
}

impl Queue {
    fn push(&self, entry: Entry) -> Result<(), TrySendError<Entry>> {
        let Some(entries) = &self.entries else { return Ok(()) };
        let pushed = entries.try_send(entry);
        // Either the thread sees the entry before it sleeps, or it is seen here that it sleeps.
        fence(SeqCst);
        if self.asleep.load(Relaxed)
            && self.asleep.swap(false, SeqCst)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
        pushed
    }

    /// The thread ends after the entries that wait.
    fn end(&mut self) -> Option<JoinHandle<()>> {
        self.entries = None;
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls the observer until its queue is dropped. Within the runtime, so the observer may spawn tasks.
fn call_for_each(
    observer: &dyn Observer,
    runtime: &Handle,
    mut entries: mpsc::Receiver<Entry>,
    asleep: &AtomicBool,
) {
    let _within = runtime.enter();
    let mut looks = 0;
    loop {
        looks += 1;
        match entries.try_recv() {
            Ok(Entry::Signal(signal)) => (looks, _) = (0, call(observer, &signal)),
            Ok(Entry::Mark(mark)) => drop(mark),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) if looks <= LOOKS => thread::park_timeout(LOOK),
            Err(TryRecvError::Empty) if asleep.load(Relaxed) => {
                thread::park();
                asleep.store(false, Relaxed);
                looks = 0;
            }
            // One more look before the sleep: an entry that came earlier wakes nobody.
            Err(TryRecvError::Empty) => {
                asleep.store(true, Relaxed);
                fence(SeqCst);
            }
        }
    }
}

fn call(observer: &dyn Observer, signal: &Signal) {
    if caught(|| observer.on(signal)).is_err() {
        // The log is one of the observers, so writing to the log may panic as well.
        let _ = caught(|| tracing::error!(target: "keylane", "an observer panicked at a signal"));
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// Blocks at the first signal until `open` is disconnected, and keeps what it is told.
    struct Gate {
        open: Mutex<std::sync::mpsc::Receiver<()>>,
        told: Arc<Mutex<Vec<Signal>>>,
    }

    impl Observer for Gate {
        fn on(&self, signal: &Signal) {
            let _ = self.open.lock().unwrap().recv_timeout(LIMIT);
            self.told.lock().unwrap().push(signal.clone());
        }
    }

    type Told = Arc<Mutex<Vec<Signal>>>;

    fn gate() -> (Arc<dyn Observer>, std::sync::mpsc::Sender<()>, Told) {
        let ((opens, open), told) = (channel(), Told::default());
        (Arc::new(Gate { open: Mutex::new(open), told: Arc::clone(&told) }), opens, told)
    }

    fn numbers(told: &Told) -> Vec<usize> {
        let number = |signal: &Signal| match signal {
            Signal::Fetched { records } => *records,
            other => panic!("{other:?}"),
        };
        told.lock().unwrap().iter().map(number).collect()
    }

    #[tokio::test]
    async fn signals_come_in_order_and_a_flush_waits_for_them() {
        let (observer, open, told) = gate();
        drop(open);
        let observers = Observers::new(vec![observer]);
        observers.emit(Signal::Fetched { records: 0 });
        assert_eq!(numbers(&told), [0], "without a thread it is told at once");
        observers.separate();
        (1..100).for_each(|records| observers.emit(Signal::Fetched { records }));
        observers.flush().await;
        assert_eq!(numbers(&told), (0..100).collect::<Vec<_>>());
        observers.emit(Signal::Fetched { records: 100 });
        observers.flush_blocking();
        assert_eq!(numbers(&told).len(), 101);
    }

    #[tokio::test]
    async fn an_observer_that_blocks_loses_signals_above_the_limit_and_the_others_are_told() {
        let ((blocked, open, got), (free, opened, told)) = (gate(), gate());
        drop(opened);
        let observers = Observers::new(vec![blocked, free]);
        observers.0[0].separate(4);
        (0..10).for_each(|records| observers.emit(Signal::Fetched { records }));
        // Four or five are kept, because the observer may have taken the first one out of the queue.
        let dropped = |signal: &Signal| match signal {
            Signal::SignalsDropped { signals } => Some(*signals),
            _ => None,
        };
        let dropped: Vec<_> = told.lock().unwrap().iter().filter_map(dropped).collect();
        assert_eq!((dropped, told.lock().unwrap().len()), (vec![1, 2, 4], 13));
        assert!(got.lock().unwrap().is_empty());
        drop(open);
        while numbers(&got).len() < 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(numbers(&got)[..4], [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn a_second_start_calls_the_observer_after_the_signals_of_the_first() {
        let (observer, open, told) = gate();
        drop(open);
        let observers = Observers::new(vec![observer]);
        for start in 0..100 {
            observers.separate();
            (0..20).for_each(|number| observers.emit(Signal::Fetched { records: 20 * start + number }));
        }
        observers.flush().await;
        assert!(numbers(&told).into_iter().eq(0..2000));
    }

    /// An alarm that is sent by a task is a usual observer.
    #[tokio::test]
    async fn an_observer_may_spawn_tasks() {
        struct Spawns(mpsc::UnboundedSender<()>);
        impl Observer for Spawns {
            fn on(&self, _: &Signal) {
                let sender = self.0.clone();
                tokio::spawn(async move { sender.send(()) });
            }
        }
        let (sender, mut sent) = mpsc::unbounded_channel();
        let observers = Observers::new(vec![Arc::new(Spawns(sender))]);
        observers.separate();
        observers.emit(Signal::LeaseLapsed);
        sent.recv().await.expect("the task has run");
    }
}
