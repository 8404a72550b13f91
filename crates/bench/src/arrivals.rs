//! Events that arrive at a steady rate by the clock, even if earlier events are late. The module keeps the times
//! at which each event was committed and reached its handler.

use std::{
    borrow::Cow,
    hint::black_box,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use keylane::{
    Config, Delivery, Handler, HandlerError, Outbox, OutboxBuilder, OutboxEvent, Registration,
    partition::Partition,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{Engine, Result, handler::HANDLER, options::Load, stage::Stage, tally::Event};

/// A run fails if an event has not reached its handler after this time.
const STALL: Duration = Duration::from_secs(60);

/// The scheduled event. It carries its number.
#[derive(Serialize, Deserialize)]
pub(super) struct Arrival {
    number: usize,
    event: Event,
}

impl OutboxEvent for Arrival {
    const RECORD_TYPE: &'static str = "bench.arrival";

    fn key(&self) -> Cow<'_, str> {
        self.event.key()
    }
}

/// The events of one run, by number.
pub(super) struct Arrivals {
    load: Load,
    times: Vec<Times>,
    /// The numbers of events that were committed, and that have entered the handler.
    committed: AtomicUsize,
    entered: AtomicUsize,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Times {
    committed: OnceLock<Instant>,
    entered: OnceLock<Instant>,
}

/// An event that has entered the handler.
pub(super) struct Entry {
    pub(super) number: usize,
    pub(super) at: Instant,
    /// From the return of the commit; zero if the handler was faster.
    pub(super) waited: Duration,
}

/// The handler: keeps the time at which an event of this run enters it. In another process it does nothing.
pub(super) struct Enter(pub(super) Option<Arc<Arrivals>>);

impl Handler for Enter {
    type Event = Arrival;

    async fn handle(&self, event: Arrival, _: &Delivery) -> std::result::Result<(), HandlerError> {
        if let Some(arrivals) = &self.0 {
            arrivals.enter(event.number);
        }
        black_box(event);
        Ok(())
    }
}

impl Arrivals {
    /// For at most this many events.
    pub(super) fn new(most: usize, load: Load) -> Arc<Self> {
        let times = (0..most).map(|_| Times::default()).collect();
        let (committed, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { load, times, committed, entered, stopped: AtomicBool::new(false) })
    }

    /// The library, with the handler that keeps the times.
    pub(super) fn outbox<E: Engine>(self: &Arc<Self>, stage: &Stage<E>, config: Config) -> OutboxBuilder<E> {
        let handler = Registration::typed(HANDLER, Enter(Some(Arc::clone(self))));
        Outbox::builder(stage.pool.clone()).config(config).handler(handler)
    }

    /// Commits one event after another at this rate, each in a transaction of its own and at its own
    /// time, until there are no more or [`stop`](Self::stop) is called; then waits for the commits.
    /// The first outbox schedules, and all of them are woken.
    pub(super) async fn send<E: Engine>(self: Arc<Self>, outboxes: Vec<Outbox<E>>, rate: f64) -> Result<()> {
        let writers = Arc::new(Semaphore::new(E::SINGLY.iter().copied().max().unwrap_or(1)));
        let outboxes = Arc::new(outboxes);
        let start = Instant::now();
        let mut commits = JoinSet::new();
        for number in 0..self.times.len() {
            tokio::time::sleep_until(start + Duration::from_secs_f64(number as f64 / rate)).await;
            if self.stopped.load(Relaxed) {
                break;
            }
            let (arrivals, outboxes, writers) =
                (Arc::clone(&self), Arc::clone(&outboxes), Arc::clone(&writers));
            commits.spawn(async move {
                let _writer = writers.acquire().await?;
                arrivals.commit(&outboxes, number).await
            });
            while let Some(committed) = commits.try_join_next() {
                committed??;
            }
        }
        while let Some(committed) = commits.join_next().await {
            committed??;
        }
        Ok(())
    }

    /// Commits the event of this number by the first outbox, and wakes all.
    pub(super) async fn commit<E: Engine>(&self, outboxes: &[Outbox<E>], number: usize) -> Result<()> {
        let [outbox, others @ ..] = outboxes else { return Ok(()) };
        outbox.transaction(async |tx| outbox.schedule(tx, &self.arrival(number)).await).await?;
        self.committed_now(number..number + 1);
        others.iter().for_each(Outbox::wake);
        Ok(())
    }

    /// Commits the events of these numbers in one transaction.
    pub(super) async fn commit_together<E: Engine>(
        &self,
        outbox: &Outbox<E>,
        numbers: Range<usize>,
    ) -> Result<()> {
        let arrivals: Vec<Arrival> = numbers.clone().map(|number| self.arrival(number)).collect();
        outbox.transaction(async |tx| outbox.schedule_all(tx, &arrivals).await).await?;
        self.committed_now(numbers);
        Ok(())
    }

    /// Writes the event of this number and commits it at a later time.
    pub(super) async fn commit_at<E: Engine>(
        &self,
        outbox: &Outbox<E>,
        number: usize,
        time: Instant,
    ) -> Result<()> {
        let write = async |tx: &mut E::Connection| {
            let written = outbox.schedule(tx, &self.arrival(number)).await;
            tokio::time::sleep_until(time).await;
            written
        };
        outbox.transaction(write).await?;
        self.committed_now(number..number + 1);
        Ok(())
    }

    fn arrival(&self, number: usize) -> Arrival {
        Arrival { number, event: Event::numbered(number, self.load) }
    }

    /// The events of these numbers have just been committed.
    fn committed_now(&self, numbers: Range<usize>) {
        let now = Instant::now();
        numbers.for_each(|number| self.committed(number, now));
    }

    /// The event of this number was committed at this time.
    pub(super) fn committed(&self, number: usize, at: Instant) {
        if self.times.get(number).is_some_and(|times| times.committed.set(at).is_ok()) {
            self.committed.fetch_add(1, SeqCst);
        }
    }

    /// The number and the time of each committed event.
    pub(super) fn commits(&self) -> impl Iterator<Item = (usize, Instant)> {
        self.times.iter().enumerate().filter_map(|(number, times)| Some((number, *times.committed.get()?)))
    }

    pub(super) fn load(&self) -> Load {
        self.load
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// An event has come as the payload of a message.
    #[cfg(feature = "kafka")]
    pub(super) fn receive(&self, payload: &[u8]) {
        if let Ok(arrival) = serde_json::from_slice::<Arrival>(payload) {
            self.enter(arrival.number);
        }
    }

    /// An event has entered the handler. A second delivery does not count.
    fn enter(&self, number: usize) {
        let now = Instant::now();
        if self.times.get(number).is_some_and(|times| times.entered.set(now).is_ok()) {
            self.entered.fetch_add(1, SeqCst);
        }
    }

    /// The number of events that were committed and have not entered the handler of this process.
    pub(super) fn backlog(&self) -> usize {
        // The entered events are read first. Both counts only grow, so no event that has entered is counted here.
        let entered = self.entered.load(SeqCst);
        self.committed.load(SeqCst).saturating_sub(entered)
    }

    /// Ends [`send`](Self::send).
    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns when everything committed so far has entered the handler in this process.
    pub(super) async fn all_entered(&self) -> Result<()> {
        let deadline = Instant::now() + STALL;
        let waits = |times: &Times| times.committed.get().is_some() && times.entered.get().is_none();
        while let Some(number) = self.times.iter().position(waits) {
            if Instant::now() > deadline {
                return Err(format!("event {number} has not reached its handler in {STALL:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// The events that have entered the handler of this process, by their number.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.times.iter().enumerate().filter_map(|(number, times)| {
            let (at, committed) = (*times.entered.get()?, *times.committed.get()?);
            Some(Entry { number, at, waited: at.saturating_duration_since(committed) })
        })
    }

    /// The partition of the event with this number.
    pub(super) fn partition(&self, number: usize) -> Partition {
        Partition::of(&Event::numbered(number, self.load).key())
    }

    /// Commits per second, counted from the event of this number on.
    pub(super) fn rate(&self, first: usize) -> Option<f64> {
        let committed = || self.times[first..].iter().filter_map(|times| times.committed.get());
        let span = *committed().max()? - *committed().min()?;
        Some((committed().count() - 1) as f64 / span.as_secs_f64())
    }
}
