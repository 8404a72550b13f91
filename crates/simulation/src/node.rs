//! A process: a runtime and a clock of its own.

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
use tokio::runtime::Runtime;

use crate::{
    client::Client, handlers, panics::panicking, plan::Plan, shared::Shared, stray::Kept, time::TRUE, writer,
};

/// Who the workers of a process are at the moment, and what their last heartbeat allows them.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    instance: Mutex<String>,
    beat_sent: AtomicU64,
}

impl Identity {
    pub(crate) fn instance(&self) -> String {
        lock(&self.instance).clone()
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
    /// A dead process writes nothing any more.
    pub(crate) dead: AtomicBool,
    /// When its lease lapsed last: calls were cancelled then.
    pub(crate) lapsed_at: AtomicU64,
    rate: u32,
    running: Mutex<Option<Running>>,
    left: AtomicBool,
    /// Calls under way of plain and of transactional handlers, and the most that there were.
    pub(crate) calls: [Calls; 2],
    /// The transaction that a handler has kept last.
    pub(crate) kept: Mutex<Option<Kept>>,
}

/// How many calls there are at once.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    now: AtomicU64,
    most: AtomicU64,
}

impl Calls {
    /// Another call begins. Returns how many there are, if there were never so many.
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
    /// The turns that it has missed.
    missed: Duration,
    pub(crate) frozen: bool,
}

/// Which process to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Its place among the nodes; none has no workers, only writers.
    pub(crate) node: Option<usize>,
    pub(crate) count: u32,
    /// The first build, or the second.
    pub(crate) second: bool,
    /// Handlers of both builds.
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
            left: AtomicBool::new(node.is_none()),
            calls: Default::default(),
            kept: Mutex::default(),
        });
        let runtime = runtime(world.seed_of(&process.name));
        let plan = plan.clone();
        runtime.spawn(run(Arc::clone(&process), plan, start));
        Self { process, runtime, missed: Duration::ZERO, frozen: false }
    }

    /// Lets the process run for so long, on the true clock.
    pub(crate) fn turn(&mut self, time: Duration) {
        if self.frozen {
            self.missed += time;
            return;
        }
        let (rate, missed) = (self.process.rate, std::mem::take(&mut self.missed));
        let clock = &self.process.world.time;
        self.runtime.block_on(async {
            if !missed.is_zero() {
                tokio::time::advance(missed * rate / TRUE).await;
            }
            clock.turn_begins(rate);
            tokio::time::sleep(time * rate / TRUE).await;
        });
        clock.turn_ends();
    }

    /// `kill -9`.
    pub(crate) fn kill(self) {
        self.process.dead.store(true, Relaxed);
        let running = lock(&self.process.running).take();
        drop(self.runtime);
        drop(running);
    }

    /// The end of a process that has shut down. Calls that were cancelled end with it.
    pub(crate) fn exit(self) {
        drop(self.runtime);
        self.process.dead.store(true, Relaxed);
    }

    /// Begins to shut down, once it has started.
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

/// The `main` of a process.
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
        .observer(Watch { process: Arc::clone(&process), stale })
        .observer(Hostile(Mutex::new(dice("observes"))))
        .build()
        .await;
    #[expect(clippy::expect_used, reason = "a plan that is refused is a fault of the plan")]
    let outbox = built.expect("an outbox");
    let writers = (0..start.writers).map(|number| {
        let dice = dice(&format!("writer {number}"));
        writer::write(Arc::clone(&process), outbox.clone(), own.clone(), plan.clone(), start, dice)
    });
    // In one task: a runtime that is dropped drops its tasks in an order that follows from numbers that all threads
    // share, and the locks of transactions would be free in that order.
    tokio::spawn(join_all(writers));
    if start.node.is_none() {
        return;
    }
    loop {
        match outbox.start().await {
            Ok(running) => return drop(lock(&process.running).replace(running)),
            // A service that cannot start is started again.
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Takes down what the workers tell.
struct Watch {
    process: Arc<Process>,
    stale: Duration,
}

impl Observer for Watch {
    fn on(&self, signal: &Signal) {
        let process = &self.process;
        let saw = |what: &str| process.note(What::Saw { what: what.to_owned() });
        match signal {
            Signal::Joined { instance } => *lock(&process.identity.instance) = instance.to_string(),
            Signal::BeatAnswered => {
                let trusted = lease::trusted_until(Duration::ZERO, self.stale) * TRUE / process.rate;
                let sent = process.identity.beat_sent.load(Relaxed);
                // Turns are taken one after the other: clocks are apart by as much.
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
