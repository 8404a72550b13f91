//! Parts for the unit tests of this wing.

use std::{sync::Arc, time::Duration};

use smallvec::{SmallVec, smallvec};

use super::{
    DeliveryConfig, Dispatcher, Setup,
    execute::ExecContext,
    outcome::{LaneRun, Run},
    shares::{Shares, Vacancy},
    work::{Item, LaneId},
};
use crate::{
    clock::Clock,
    database::Database,
    handler::{
        BoxFuture, Call, Context, Defaults, Entry, HandlerError, RecordTypes, Registration, Registry, States,
    },
    instance::{Generation, InstanceId},
    memory::{Memory, MemoryPool},
    ownership::Ownership,
    partition::Partition,
    record::{Delivery, Due, NewRecord, Record},
    rules::horizon::Server,
    store::{FenceRow, Store, StoreSettings, Tables},
};

/// The generation of all owned partitions.
pub(super) const GENERATION: Generation = Generation(1);

/// A closure as a handler.
struct Act<F>(F);

impl<F: Fn(&Record) -> Result<(), HandlerError> + Send + Sync + 'static> Call for Act<F> {
    fn call<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move { (self.0)(context.record()) })
    }
}

/// One handler, `h`, of every type.
pub(super) fn registry(
    act: impl Fn(&Record) -> Result<(), HandlerError> + Send + Sync + 'static,
) -> Arc<Registry> {
    registry_of(Registration::single("h", RecordTypes::all(), Act(act)))
}

/// The registry of one handler.
pub(super) fn registry_of(handler: Registration) -> Arc<Registry> {
    let defaults = Defaults {
        retry: Default::default(),
        timeout: Duration::from_secs(1),
        stop_on_first_failure: true,
        on_failure: None,
        ordered: true,
    };
    Arc::new(Registry::build(vec![handler], States::default(), &defaults, "memory", &|_| None).unwrap())
}

/// The executor has places for any number of runs.
pub(super) const PLAIN: Vacancy = Vacancy { transactional: false, free: usize::MAX };
/// The same for runs of transactional handlers.
pub(super) const TRANSACTIONAL: Vacancy = Vacancy { transactional: true, free: usize::MAX };

/// The shares of an instance with one handler.
pub(super) fn shares() -> Shares {
    Shares::new([entry()].iter(), DeliveryConfig::default().memory())
}

/// The handler of a registry whose handler does nothing.
pub(super) fn entry() -> Arc<Entry> {
    Arc::clone(registry(|_| Ok(())).entry("h", "t").unwrap())
}

/// All partitions are owned, and the lease is valid.
pub(super) fn owning_all() -> Ownership {
    let ownership = Ownership::new(Clock::pausable());
    let all: Vec<_> = Partition::all().map(|partition| (partition, GENERATION)).collect();
    ownership.grant(&all);
    ownership.renew(ownership.clock().now(), Duration::from_secs(30));
    ownership
}

pub(super) fn record(id: i64, key: &str) -> Record {
    let delivery = Delivery {
        id,
        event_id: uuid::Uuid::nil(),
        key: key.into(),
        handler: "h".into(),
        record_type: "t".into(),
        content_type: "application/json".into(),
        partition: Partition::of(key),
        generation: GENERATION,
        attempt: 1,
        headers: Default::default(),
        age: Duration::ZERO,
        expires_in: None,
    };
    Record { delivery, payload: Vec::new() }
}

pub(super) fn store(pool: &MemoryPool) -> Arc<dyn Store> {
    let settings = StoreSettings { call_timeout: Duration::from_secs(1), ..StoreSettings::default() };
    Memory::open(pool, settings).unwrap()
}

/// Schedules records of the key `a`.
pub(super) async fn schedule(pool: &MemoryPool, due: &[Due]) {
    let new = |due: &Due| {
        let Record { delivery, payload } = record(0, "a");
        NewRecord {
            event_id: delivery.event_id,
            partition: delivery.partition,
            key: delivery.key.to_string(),
            handler: delivery.handler,
            record_type: delivery.record_type,
            content_type: delivery.content_type,
            payload,
            headers: delivery.headers,
            due: *due,
            deadline: None,
            dedup_key: None,
        }
    };
    let mut tx = pool.begin().await.unwrap();
    let records: Vec<NewRecord> = due.iter().map(new).collect();
    Memory::insert(&mut tx, &Tables::default(), &records).await.unwrap();
    tx.commit().await.unwrap();
}

/// The fence row of an instance on the server in memory.
pub(super) fn fence() -> FenceRow {
    FenceRow::of_settler(InstanceId::generate(), Server::default())
}

/// A dispatcher that owns all partitions and is not started.
pub(super) fn dispatcher() -> Dispatcher {
    Dispatcher::new(Setup {
        store: store(&MemoryPool::new()),
        registry: registry(|_| Ok(())),
        config: DeliveryConfig::default(),
        ownership: owning_all(),
        wake: Default::default(),
        listen_state: Default::default(),
        observers: Default::default(),
        fence: fence(),
        longest_hold: Duration::from_secs(55),
    })
}

/// Records 1 to `count` of the key `a`, with permits, as the lane of a run.
pub(super) fn lanes(ownership: &Ownership, count: i64) -> SmallVec<[LaneRun; 1]> {
    let items = (1..=count).map(|id| item(ownership, record(id, "a")));
    smallvec![LaneRun::new(LaneId(0), items)]
}

/// A run of these records.
pub(super) fn run(ownership: &Ownership, count: i64) -> Run {
    Run::new(entry(), lanes(ownership, count))
}

/// A record with a permit.
pub(super) fn item(ownership: &Ownership, record: Record) -> Item {
    let permit = ownership.permit(record.delivery.partition).unwrap();
    Item { record: Arc::new(record), permit, stops_lane: false, care: Default::default(), expires: None }
}

/// A context without an observer.
pub(super) fn context(ownership: &Ownership) -> ExecContext {
    ExecContext {
        states: States::default(),
        observers: Default::default(),
        clock: ownership.clock(),
        targets: ownership.vitals().targets().clone(),
        longest_hold: Duration::from_secs(55),
    }
}
