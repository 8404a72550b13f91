//! Events that arrive by the clock, whatever became of those before, and the times of each.

use std::{
    borrow::Cow,
    hint::black_box,
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use keylane::{Delivery, Handler, HandlerError, Outbox, OutboxEvent};
use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    super::{engine::Engine, options::Load, tally::Event},
    Result,
};

/// Events of a transaction.
const TOGETHER: usize = 10;

/// An event that knows its number.
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

/// All events of a run, by number, and one more that is held back.
pub(super) struct Flow {
    start: Instant,
    interval: Duration,
    load: Load,
    times: Vec<Times>,
    committed: AtomicUsize,
    entered: AtomicUsize,
}

/// In microseconds since the start; 0 for not yet.
#[derive(Default)]
struct Times {
    committed: AtomicU64,
    entered: AtomicU64,
}

/// An event that was committed and has come to its handler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    /// When its commit returned, in seconds since the start.
    pub(super) committed: f64,
    /// How long it took from there to the handler, in milliseconds. 0 if the handler was faster.
    pub(super) waited: f64,
}

/// The handler: notes the time.
pub(super) struct Enter(pub(super) Arc<Flow>);

impl Handler for Enter {
    type Event = Arrival;

    async fn handle(&self, event: Arrival, _: &Delivery) -> std::result::Result<(), HandlerError> {
        self.0.enter(&black_box(event));
        Ok(())
    }
}

impl Flow {
    /// At this rate for so long, from now on.
    pub(super) fn new(rate: f64, lasts: Duration, load: Load) -> Arc<Self> {
        let events = (rate * lasts.as_secs_f64()) as usize + 1;
        Arc::new(Self {
            start: Instant::now(),
            interval: Duration::from_secs_f64(1.0 / rate),
            load,
            times: (0..events).map(|_| Times::default()).collect(),
            committed: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
        })
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// Commits all but the last event, on so many connections.
    pub(super) async fn send<E: Engine>(
        self: &Arc<Self>,
        outbox: &Outbox<E>,
        connections: usize,
    ) -> Result<()> {
        let mut writers = JoinSet::new();
        for writer in 0..connections {
            let (flow, outbox) = (Arc::clone(self), outbox.clone());
            writers.spawn(async move {
                let firsts = (0..flow.times.len() - 1).step_by(TOGETHER).skip(writer).step_by(connections);
                for first in firsts {
                    sleep_until(flow.start + flow.interval * first as u32).await;
                    let numbers = first..(first + TOGETHER).min(flow.times.len() - 1);
                    let events: Vec<Arrival> = numbers.map(|number| flow.arrival(number)).collect();
                    outbox.transaction(async |tx| outbox.schedule_all(tx, &events).await).await?;
                    flow.commit(&events);
                }
                Result::Ok(())
            });
        }
        while let Some(writer) = writers.join_next().await {
            writer??;
        }
        Ok(())
    }

    /// Writes the last event at one time and commits it at another.
    pub(super) async fn hold<E: Engine>(
        &self,
        pool: &E::Pool,
        outbox: &Outbox<E>,
        from: Instant,
        to: Instant,
    ) -> Result<()> {
        let event = self.arrival(self.times.len() - 1);
        sleep_until(from).await;
        let mut tx = E::begin(pool).await?;
        outbox.schedule(&mut tx, &event).await?;
        sleep_until(to).await;
        E::commit(tx).await?;
        outbox.wake();
        self.commit(&[event]);
        Ok(())
    }

    /// Events that were committed and have not come to their handler.
    pub(super) fn backlog(&self) -> usize {
        // In this order: what is entered is never more than what was committed, but for those whose
        // commit is still returning.
        let entered = self.entered.load(SeqCst);
        self.committed.load(SeqCst).saturating_sub(entered)
    }

    /// Returns when every event has come to its handler.
    pub(super) async fn all_entered(&self) {
        while self.entered.load(Relaxed) < self.times.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn passages(&self) -> impl Iterator<Item = Passage> {
        self.times.iter().map(|times| {
            let [committed, entered] = [&times.committed, &times.entered].map(|time| time.load(Relaxed));
            Passage {
                committed: committed as f64 / 1e6,
                waited: entered.saturating_sub(committed) as f64 / 1e3,
            }
        })
    }

    fn arrival(&self, number: usize) -> Arrival {
        Arrival { number, event: Event::numbered(number, self.load) }
    }

    fn commit(&self, events: &[Arrival]) {
        let now = self.now();
        for event in events {
            self.times[event.number].committed.store(now, Relaxed);
        }
        self.committed.fetch_add(events.len(), SeqCst);
    }

    fn enter(&self, event: &Arrival) {
        let now = self.now();
        let first = self.times[event.number].entered.compare_exchange(0, now, Relaxed, Relaxed);
        if first.is_ok() {
            self.entered.fetch_add(1, SeqCst);
        }
    }

    fn now(&self) -> u64 {
        (self.start.elapsed().as_micros() as u64).max(1)
    }
}
