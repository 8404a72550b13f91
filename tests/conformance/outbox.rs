//! A new outbox, a worker that settles in it, and the vocabulary of the cases.

use std::{future::Future, sync::Arc, time::Duration};

use keylane::{
    Completed, Record, RecordId,
    admin::InstanceId,
    database::Database,
    inner::{
        Change, Due, FenceRow, NewInstance, NewRecord, Pick, Settled, Settlement, Stop, Store, StoreSettings,
        Tables,
    },
    partition::{Partition, PartitionSet},
    rules::horizon::Server,
};
use uuid::Uuid;

use crate::target::{Connection, Pool, SqlTarget, Target, Tx};

/// A limit above the number of records of any case.
pub(crate) const ALL: usize = 10_000;

/// An empty outbox with tables of its own.
pub(crate) struct Outbox<T: Target> {
    pub(crate) pool: Pool<T>,
    pub(crate) tables: Tables,
    pub(crate) producer: Arc<<T::Db as Database>::Producer>,
    pub(crate) store: Arc<dyn Store>,
    unique: String,
}

impl<T: Target> Outbox<T> {
    /// `None` if the store is skipped.
    pub(crate) async fn open() -> Option<Self> {
        // The last bits of a uuid v7 are random.
        let unique = format!("c{:012x}", Uuid::now_v7().as_u128() & 0xffff_ffff_ffff);
        let pool = T::open(&unique).await?;
        let outbox = Self::over(pool, unique.clone(), T::tables(&unique));
        outbox.store.migrate().await.unwrap();
        Some(outbox)
    }

    fn over(pool: Pool<T>, unique: String, tables: Tables) -> Self {
        let settings = settings(&tables, Completed::Delete);
        let store = T::Db::open(&pool, settings).unwrap();
        let producer = Arc::new(T::Db::producer(&tables));
        Self { pool, tables, producer, store, unique }
    }

    /// Another outbox on the same pool, whose tables do not exist yet.
    pub(crate) fn beside(&self) -> Self {
        let unique = format!("{}b", self.unique);
        Self::over(self.pool.clone(), unique.clone(), T::tables(&unique))
    }

    pub(crate) async fn erase(self) {
        let Self { pool, unique, store, .. } = self;
        drop(store);
        T::erase(&pool, &unique).await;
    }

    /// Another process on the same tables.
    pub(crate) fn store_with(&self, settings: StoreSettings) -> Arc<dyn Store> {
        T::Db::open(&self.pool, settings).unwrap()
    }

    /// Another process on the same tables with this setting for completed records.
    pub(crate) fn store_that(&self, completed: Completed) -> Arc<dyn Store> {
        self.store_with(self.settings(completed))
    }

    pub(crate) fn settings(&self, completed: Completed) -> StoreSettings {
        settings(&self.tables, completed)
    }

    pub(crate) async fn begin(&self) -> Tx<T> {
        T::Db::begin(&self.pool).await.unwrap()
    }

    pub(crate) async fn commit(&self, tx: Tx<T>) {
        T::Db::commit(tx).await.unwrap();
    }

    pub(crate) async fn insert(&self, conn: &mut Connection<T>, records: &[NewRecord]) {
        T::Db::insert(conn, &self.producer, records).await.unwrap();
    }

    /// Schedules records in a separate transaction.
    pub(crate) async fn schedule(&self, records: &[NewRecord]) {
        let mut tx = self.begin().await;
        self.insert(&mut tx, records).await;
        self.commit(tx).await;
    }

    /// Schedules one record per key, in one transaction. Returns their ids.
    pub(crate) async fn schedule_keys(&self, keys: &[&str]) -> Vec<RecordId> {
        let records: Vec<NewRecord> = keys.iter().map(|key| record(key)).collect();
        self.schedule(&records).await;
        self.ids_of(&records).await
    }

    /// The ids of these pending records, in their order.
    pub(crate) async fn ids_of(&self, records: &[NewRecord]) -> Vec<RecordId> {
        let pending = self.pending().await;
        let id = |new: &NewRecord| {
            let found = pending.iter().find(|record| {
                record.delivery.event_id == new.event_id && record.delivery.handler == new.handler
            });
            found.expect("the record is pending").delivery.id
        };
        records.iter().map(id).collect()
    }

    /// All pending records, partition by partition.
    pub(crate) async fn pending(&self) -> Vec<Arc<Record>> {
        let partitions: Vec<Partition> = Partition::all().collect();
        self.store.fetch_by_partition(&partitions, Pick::new(&[], ALL)).await.unwrap()
    }

    /// All pending records of the partition of this key.
    pub(crate) async fn pending_ids(&self, key: &str) -> Vec<RecordId> {
        ids(&self.store.fetch_by_partition(&[Partition::of(key)], Pick::new(&[], ALL)).await.unwrap())
    }

    /// All records whose time has come.
    pub(crate) async fn due(&self) -> Vec<Arc<Record>> {
        self.store.fetch_due(PartitionSet::ALL, Pick::new(&[], ALL)).await.unwrap().0
    }

    pub(crate) async fn stops(&self) -> Vec<Stop> {
        self.store.stops(PartitionSet::ALL).await.unwrap()
    }

    /// A new instance with two fence rows.
    pub(crate) async fn join(&self) -> Worker {
        let id = InstanceId::generate();
        let (name, version) = ("case".to_owned(), "0.0.0".to_owned());
        self.store.join(&NewInstance { id, name, version, fence_rows: 2 }).await.unwrap();
        let server = self.store.server().await.unwrap();
        Worker { id, counter: 0, server, store: Arc::clone(&self.store) }
    }
}

impl<T: SqlTarget> Outbox<T> {
    /// Statements with `{outbox}` for the names of the tables.
    pub(crate) fn sql(&self, text: &str) -> String {
        let qualifier = match self.tables.schema() {
            Some(schema) => format!("{schema}.{}", self.tables.prefix()),
            None => self.tables.prefix().to_owned(),
        };
        text.replace("{outbox}", &qualifier)
    }

    /// Runs statements in a separate transaction. Returns the number of written rows.
    pub(crate) async fn execute(&self, text: &str) -> u64 {
        let mut tx = self.begin().await;
        let done = T::execute(&mut tx, self.sql(text)).await.unwrap();
        self.commit(tx).await;
        done
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        let mut tx = self.begin().await;
        let number = T::number(&mut tx, self.sql(text)).await;
        self.commit(tx).await;
        number
    }

    /// The number of rows in the fence table and in the instance table.
    pub(crate) async fn fence_rows(&self) -> (i64, i64) {
        let fence_rows = self.number("SELECT count(*) FROM {outbox}fence").await;
        (fence_rows, self.number("SELECT count(*) FROM {outbox}instance").await)
    }
}

/// An instance that settles under its first fence row.
pub(crate) struct Worker {
    pub(crate) id: InstanceId,
    pub(crate) counter: i64,
    pub(crate) server: Server,
    pub(crate) store: Arc<dyn Store>,
}

impl Worker {
    pub(crate) fn fence(&self) -> FenceRow {
        FenceRow { counter: self.counter, ..FenceRow::of_settler(self.id, self.server) }
    }

    /// The same instance, over another store.
    pub(crate) fn over(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// Settles: the id, the failures counted so far, and the change of each record.
    pub(crate) async fn settle<const N: usize>(&mut self, changes: [(RecordId, u32, Change); N]) -> Settled {
        self.settle_all(changes.into_iter().map(settlement).collect()).await
    }

    pub(crate) async fn settle_all(&mut self, settlements: Vec<Settlement>) -> Settled {
        let settled = self.store.settle(self.fence(), &settlements).await.unwrap();
        self.counter += 1;
        settled
    }
}

pub(crate) fn settlement((id, failures, change): (RecordId, u32, Change)) -> Settlement {
    Settlement { id, failures, change }
}

/// A first retry that stops the lane for an hour.
pub(crate) fn stop() -> Change {
    Change::Retry { delay: Duration::from_secs(3600), error: "refused".to_owned(), stop: true, counted: true }
}

pub(crate) fn retry_after(delay: Duration) -> Change {
    Change::Retry { delay, error: "refused".to_owned(), stop: false, counted: true }
}

pub(crate) fn settings(tables: &Tables, completed: Completed) -> StoreSettings {
    let call_timeout = Duration::from_secs(10);
    let settings = StoreSettings { call_timeout, async_settle: false, ..StoreSettings::default() };
    StoreSettings { tables: tables.clone(), completed, ..settings }
}

/// A record of this key for the handler `bookkeeper`.
pub(crate) fn record(key: &str) -> NewRecord {
    NewRecord {
        event_id: Uuid::now_v7(),
        partition: Partition::of(key),
        key: key.to_owned(),
        handler: "bookkeeper".into(),
        record_type: "order.placed".into(),
        content_type: "application/json".into(),
        payload: br#"{"order":1}"#.to_vec(),
        headers: Default::default(),
        due: Due::Now,
        deadline: None,
        dedup_key: None,
    }
}

pub(crate) fn due_record(key: &str, due: Due) -> NewRecord {
    NewRecord { due, ..record(key) }
}

pub(crate) fn ids(records: &[Arc<Record>]) -> Vec<RecordId> {
    records.iter().map(|record| record.delivery.id).collect()
}

pub(crate) fn keys(records: &[Arc<Record>]) -> Vec<String> {
    records.iter().map(|record| record.delivery.key.to_string()).collect()
}

pub(crate) fn partition(number: i64) -> Partition {
    Partition::new(number).unwrap()
}

/// Two keys of one partition, so that only the key tells their lanes apart.
pub(crate) fn neighbours() -> (String, String) {
    let first = "neighbour-0".to_owned();
    let same = |key: &String| Partition::of(key) == Partition::of(&first);
    let second = (1..).map(|n| format!("neighbour-{n}")).find(same).unwrap();
    (first, second)
}

/// A time that is enough for any call that waits for no lock.
const WAITS: Duration = Duration::from_millis(400);

/// Asserts that `work` waits. It can go on afterwards.
pub(crate) async fn assert_waits<F: Future + Unpin>(work: &mut F) {
    assert!(tokio::time::timeout(WAITS, work).await.is_err(), "it should wait, but came through");
}

/// Asserts that `work` does not wait for ever. A call of the store that waits ends by itself before, with an error.
pub(crate) async fn promptly<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), work).await.expect("it should come through, but waits")
}

/// A time after which every clock has advanced.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
