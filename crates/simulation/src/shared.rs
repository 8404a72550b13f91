//! The state shared by all processes of a world, which belongs to none of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use keylane::memory::MemoryPool;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    node::lock,
    plan::Plan,
    recorder::{Keep, Recorder},
    time::Time,
    weather::Weather,
};

/// The most events that writers schedule, so that all can be delivered in time.
const MOST_EVENTS: u64 = 250;

/// The state shared by all processes of a world.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) time: Arc<Time>,
    pub(crate) recorder: Recorder,
    pub(crate) pool: MemoryPool,
    pub(crate) weather: Mutex<Weather>,
    pub(crate) latency: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) turn: Duration,
    numbers: AtomicU64,
    events: AtomicU64,
    /// A clone per open transaction of a producer.
    open: Arc<()>,
    settling: AtomicBool,
    /// Whether the cluster is at rest, with only a few events.
    resting: AtomicBool,
    done: AtomicBool,
    /// The number of calls per record.
    calls: Mutex<BTreeMap<(Uuid, String), u32>>,
    /// Records that a person has repaired.
    repaired: Mutex<BTreeSet<(Uuid, String)>>,
}

impl Shared {
    pub(crate) fn new(plan: &Plan, keep: Keep) -> Self {
        let (time, pool) = (Arc::new(Time::new()), MemoryPool::new());
        pool.use_up_between(plan.ids_between);
        Self {
            seed: plan.seed,
            recorder: Recorder::new(Arc::clone(&time), plan.expect(), keep),
            time,
            pool,
            weather: Mutex::default(),
            latency: plan.latency,
            call_timeout: plan.config.database.call_timeout,
            turn: plan.turn,
            numbers: AtomicU64::new(1),
            events: AtomicU64::new(0),
            open: Arc::new(()),
            settling: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            done: AtomicBool::new(false),
            calls: Mutex::default(),
            repaired: Mutex::default(),
        }
    }

    /// A number that is unique in this history.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// A transaction of a producer counts as open until the result is dropped.
    pub(crate) fn opens(&self) -> Arc<()> {
        Arc::clone(&self.open)
    }

    /// Whether no more commits will come.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_settling() && !self.is_resting() && Arc::strong_count(&self.open) == 1
    }

    pub(crate) fn scheduled(&self) {
        self.events.fetch_add(1, Relaxed);
    }

    /// Whether producers have no more to do.
    pub(crate) fn has_enough(&self) -> bool {
        self.is_settling() || self.events.load(Relaxed) >= MOST_EVENTS
    }

    /// The seed of an actor, which does not depend on other actors.
    pub(crate) fn seed_of(&self, actor: &str) -> u64 {
        xxh3_64_with_seed(actor.as_bytes(), self.seed)
    }

    /// Counts a call of a record. Returns the number of the call, and whether a person has repaired the
    /// record.
    pub(crate) fn called(&self, event: Uuid, handler: &str) -> (u32, bool) {
        let record = (event, handler.to_owned());
        let repaired = self.is_settling() || lock(&self.repaired).contains(&record);
        let mut calls = lock(&self.calls);
        let count = calls.entry(record).or_default();
        *count += 1;
        (*count, repaired)
    }

    pub(crate) fn repaired(&self, event: Uuid, handler: &str) {
        lock(&self.repaired).insert((event, handler.to_owned()));
    }

    /// Whether the faults are over.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.load(Relaxed)
    }

    /// Ends the time of the faults.
    pub(crate) fn settle(&self) {
        self.settling.store(true, Relaxed);
    }

    /// Begins the time of rest, in which few events come. Until these are delivered, the run is not done.
    pub(crate) fn rests(&self) {
        self.resting.store(true, Relaxed);
    }

    pub(crate) fn rested(&self) {
        self.done.store(false, Relaxed);
        self.resting.store(false, Relaxed);
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Relaxed)
    }

    /// Whether the operator has found nothing left.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }

    pub(crate) fn all_done(&self) {
        self.done.store(true, Relaxed);
    }
}
