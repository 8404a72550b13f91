//! A process: a separate runtime and clock.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use keylane::{Observer, Outbox, Running, Signal, rules::lease};
use keylane_checker::{Invariant, Violation, What};
use tokio::{runtime::Runtime, time::Instant};

use crate::{
    client::Client, handlers, panics::panicking, plan::Plan, shared::Shared, stray::Kept, time::TRUE, writer,
};

/// The present identity of a process's workers, and the end of their lease.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    instance: Mutex<String>,
    beat_sent: AtomicU64,
}

impl Identity {
    pub(crate) fn instance(&self) -> String {
        lock(&self.instance).clone()
    }

    pub(crate) fn is_now(&self, instance: String) {
        *lock(&self.instance) = instance;
    }

    pub(crate) fn beat_sent(&self, at: u64) {
        self.beat_sent.store(at, Relaxed);
    }
}

/// What a process and its tasks share.
pub(crate) struct Process {
    pub(crate) world: Arc<Shared>,
    pub(crate) name: String,
    pub(crate) identity: Arc<Identity>,
    /// Whether the process is dead and must write nothing.
    pub(crate) dead: AtomicBool,
    /// The time of the last lapse of the lease, at which calls were cancelled.
    pub(crate) lapsed_at: AtomicU64,
    rate: u32,
    running: Mutex<Option<Running>>,
    /// Whether the workers have started.
    started: AtomicBool,
    left: AtomicBool,
    /// The calls under way of plain and of transactional handlers, with the most at once.
    pub(crate) calls: [Calls; 2],
    /// The last transaction that a handler has kept.
    pub(crate) kept: Mutex<Option<Kept>>,
}

/// The number of calls at once.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    now: AtomicU64,
    most: AtomicU64,
}

impl Calls {
    /// A call begins. Returns the number of calls if it is the highest so far.
    pub(crate) fn begin(&self) -> Option<u64> {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        (self.most.fetch_max(now, Relaxed) < now).then_some(now)
    }

    pub(crate) fn end(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
}

/// A process, seen from the world.
pub(crate) struct Node {
    pub(crate) process: Arc<Process>,
    runtime: Runtime,
    /// The time of the turns that the process has missed.
    missed: Duration,
    /// The end of the last turn on the process's clock. Timers fire at full milliseconds, so a turn may last up to one
    /// longer: the next one is shorter, or the clock would run ahead of its rate.
    due: Option<Instant>,
    pub(crate) frozen: bool,
}

/// The process to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The index among the nodes; `None` for a process without workers, which has only writers.
    pub(crate) node: Option<usize>,
    pub(crate) count: u32,
    /// Whether the process runs the second build.
    pub(crate) second: bool,
    /// Whether the process has the handlers of both builds.
    pub(crate) all: bool,
    pub(crate) writers: usize,
}

impl Process {
    pub(crate) fn note(&self, what: What) {
        if !self.dead.load(Relaxed) {
            self.world.recorder.note(&self.name, what);
        }
    }
}

impl Node {
    pub(crate) fn start(world: &Arc<Shared>, plan: &Plan, start: Start) -> Self {
        let Start { node, count, .. } = start;
        let name = node.map_or_else(|| "producer".to_owned(), |node| format!("node-{node}.{count}"));
        let process = Arc::new(Process {
            world: Arc::clone(world),
            name,
            identity: Arc::default(),
            dead: AtomicBool::new(false),
            lapsed_at: AtomicU64::new(0),
            rate: node.map_or(TRUE, |node| plan.rates[node]),
            running: Mutex::default(),
            started: AtomicBool::new(false),
            left: AtomicBool::new(node.is_none()),
            calls: Default::default(),
            kept: Mutex::default(),
        });
        let runtime = runtime(world.seed_of(&process.name));
        let plan = plan.clone();
        runtime.spawn(run(Arc::clone(&process), plan, start));
        Self { process, runtime, missed: Duration::ZERO, due: None, frozen: false }
    }

    /// Lets the process run for this time of the true clock.
    pub(crate) fn turn(&mut self, time: Duration) {
        if self.frozen {
            self.missed += time;
            return;
        }
        let (rate, missed) = (self.process.rate, std::mem::take(&mut self.missed));
        let (clock, begun) = (&self.process.world.time, self.due);
        let due = self.runtime.block_on(async {
            let due = begun.unwrap_or_else(Instant::now) + (missed + time) * rate / TRUE;
            if !missed.is_zero() {
                tokio::time::advance(missed * rate / TRUE).await;
            }
            clock.turn_begins(rate);
            tokio::time::sleep_until(due).await;
            due
        });
        self.due = Some(due);
        clock.turn_ends();
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(self) {
        self.process.dead.store(true, Relaxed);
        let running = lock(&self.process.running).take();
        drop(self.runtime);
        drop(running);
    }

    /// Ends a process that has shut down. Calls that were cancelled end with it.
    pub(crate) fn exit(self) {
        drop(self.runtime);
        self.process.dead.store(true, Relaxed);
    }

    /// Begins to shut down, once the process has started.
    pub(crate) fn leave(&self) {
        let process = Arc::clone(&self.process);
        self.runtime.spawn(async move {
            loop {
                let running = lock(&process.running).take();
                if let Some(running) = running {
                    running.shutdown().await;
                    return process.left.store(true, Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    /// Whether its workers have started and, unless the mode is claimed, joined the cluster.
    pub(crate) fn has_joined(&self) -> bool {
        self.process.started.load(Relaxed) || !self.process.identity.instance().is_empty()
    }

    /// Whether its workers have shut down.
    pub(crate) fn has_left(&self) -> bool {
        self.process.left.load(Relaxed)
    }

    /// Runs a task on the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}

pub(crate) fn runtime(seed: u64) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let _ = seed;
    #[expect(clippy::expect_used, reason = "a runtime without threads and drivers needs nothing")]
    builder.build().expect("a runtime")
}

/// Runs the `main` of a process.
async fn run(process: Arc<Process>, plan: Plan, start: Start) {
    let world = &process.world;
    let dice = |what: &str| Rng::with_seed(world.seed_of(&format!("{} {what}", process.name)));
    let own = world.pool.under(Client::new(world, start.node, None, dice("writes")));
    let workers = Client::new(world, start.node, Some(Arc::clone(&process.identity)), dice("works"));
    let workers = world.pool.under(workers);
    let handling = world.pool.under(Client::new(world, start.node, None, dice("handles")));
    let handlers = start.node.map(|_| handlers::of(&process, &plan, start, &handling)).unwrap_or_default();
    let stale = plan.config.cluster.stale_instance_timeout;
    let built = Outbox::builder(workers)
        .config(plan.config.clone())
        .handlers(handlers)
        .observer(Watch { process: Arc::clone(&process), stale, claims: plan.is_claimed() })
        .observer(Hostile(Mutex::new(dice("observes"))))
        .build()
        .await;
    #[expect(clippy::expect_used, reason = "a plan that is refused is a fault of the plan")]
    let outbox = built.expect("an outbox");
    let writers = (0..start.writers).map(|number| {
        let dice = dice(&format!("writer {number}"));
        writer::write(Arc::clone(&process), outbox.clone(), own.clone(), plan.clone(), start, dice)
    });
    // The writers share one task. A dropped runtime drops its tasks in an order that depends on numbers
    // shared by all threads, and the locks of transactions would be freed in that order.
    tokio::spawn(join_all(writers));
    if start.node.is_none() {
        return;
    }
    loop {
        match outbox.start().await {
            Ok(running) => {
                process.started.store(plan.is_claimed(), Relaxed);
                return drop(lock(&process.running).replace(running));
            }
            // A service that cannot start is started again.
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Writes the signals of the workers to the history.
struct Watch {
    process: Arc<Process>,
    stale: Duration,
    /// Whether the mode is claimed, in which a process has no lease of its own.
    claims: bool,
}

impl Observer for Watch {
    fn on(&self, signal: &Signal) {
        let process = &self.process;
        let saw = |what: &str| process.note(What::Saw { what: what.to_owned() });
        match signal {
            Signal::Joined { instance } => process.identity.is_now(instance.to_string()),
            // In claimed mode it says only that the database answers again.
            Signal::BeatAnswered if !self.claims => {
                let trusted = lease::trusted_until(Duration::ZERO, self.stale) * TRUE / process.rate;
                let sent = process.identity.beat_sent.load(Relaxed);
                // Nodes take turns, so their clocks can be apart by one turn.
                let until = sent + (trusted + process.world.turn).as_nanos() as u64;
                process.note(What::LeaseUntil { instance: process.identity.instance(), until });
            }
            Signal::LeaseLapsed => {
                process.lapsed_at.store(process.world.time.now(), Relaxed);
                saw("lease lapsed");
            }
            Signal::Evicted { .. } => saw("evicted"),
            Signal::ClaimsLost { .. } => saw("claims lost"),
            Signal::ServerChanged { .. } => saw("server changed"),
            Signal::PeerEvicted { .. } => saw("peer evicted"),
            Signal::ObservationInterrupted => saw("observation interrupted"),
            Signal::LostReplyResolved { applied: true } => saw("lost reply was applied"),
            Signal::LostReplyResolved { applied: false } => saw("lost reply was not applied"),
            Signal::Unroutable { .. } => saw("unroutable"),
            Signal::Undecodable { .. } => saw("undecodable"),
            Signal::FallbackTaken { .. } => saw("fallback"),
            Signal::TargetUnavailable { .. } => saw("target unavailable"),
            Signal::ShutdownForced { .. } => saw("shutdown forced"),
            Signal::RecordFailed { .. } => saw("record failed"),
            Signal::CrashesSuspected { .. } => saw("crashes suspected"),
            Signal::ClaimsOutlived { .. } => saw("claims outlived"),
            Signal::Quarantined { .. } | Signal::WorkersDied { .. } => {
                process.world.recorder.object(Violation {
                    invariant: Invariant::NoLoss,
                    text: format!("the library says {signal:?}"),
                    excerpt: Vec::new(),
                })
            }
            _ => {}
        }
    }
}

/// An observer that panics now and then.
struct Hostile(Mutex<Rng>);

impl Observer for Hostile {
    fn on(&self, _: &Signal) {
        if lock(&self.0).u8(..50) == 0 {
            panicking("the observer");
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
