//! A cluster of worker processes, the feed of records, and the waits of the tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use keylane::{Config, Outbox, OutboxEvent, Scheduled};
use keylane_checker::{Journal, What, history};
use keylane_cluster_tests::{
    event::Step,
    journal::{self, now},
};
use sqlx::types::Uuid;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::{
    database::Target,
    worker::{Build, Worker},
};

/// The longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const KEYS: u32 = 50;
/// The handler of the workers.
pub(crate) const HANDLER: &str = "worker";

/// The most clusters at once. With more, a worker gets no processor time for so long that it is declared dead.
static PLACES: Semaphore = Semaphore::const_new(2);

/// A database with workers on it.
pub(crate) struct Cluster<T: Target> {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) pool: T::Pool,
    pub(crate) outbox: Outbox<T::Db>,
    /// The history of the producer and of the test itself.
    pub(crate) journal: Journal,
    /// Events that were scheduled, by key and step.
    pub(crate) events: BTreeMap<(u32, u32), Uuid>,
    /// Events that the database has lost or is about to lose.
    pub(crate) lost: BTreeSet<Uuid>,
    pub(crate) folder: PathBuf,
    /// The files of the worker processes.
    pub(crate) journals: Vec<PathBuf>,
    steps: BTreeMap<u32, u32>,
    dead_instances: BTreeSet<String>,
    transactions: u64,
    pub(crate) mode: &'static str,
    seed: u64,
    _place: SemaphorePermit<'static>,
}

/// Reads the claims of the partitions again and again.
pub(crate) struct Watcher<T: Target> {
    pool: T::Pool,
    prefix: String,
}

impl<T: Target> Watcher<T> {
    /// Waits until living owners have all partitions of this instance. Returns how long that took.
    pub(crate) async fn wait_until_taken_over(&self, instance: &str) -> Duration {
        let started = Instant::now();
        loop {
            let claims = T::claims(&self.pool, &self.prefix).await;
            if claims.iter().all(|(owner, _)| owner.as_deref().is_some_and(|owner| owner != instance)) {
                return started.elapsed();
            }
            assert!(started.elapsed() < PATIENCE, "nobody takes over from {instance}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl<T: Target> Cluster<T> {
    pub(crate) async fn new(name: &str, mode: &'static str) -> Self {
        let unique = format!("x{}{}", std::process::id() % 100_000, name);
        Self::at(T::url(&unique), unique, mode).await
    }

    pub(crate) async fn at(url: String, unique: String, mode: &'static str) -> Self {
        let _place = PLACES.acquire().await.expect("a place");
        let pool = T::connect(&url);
        let prefix = format!("{unique}_");
        // It delivers nothing, so it may wait longer for the database than a worker, whose lease is short.
        let config = Config::default().table_prefix(&prefix);
        let outbox = Outbox::builder(pool.clone()).config(config).build().await.expect("outbox");
        outbox.migrate().await.expect("migrate");
        let effects = format!("CREATE TABLE {prefix}effect (k BIGINT NOT NULL, step BIGINT NOT NULL)");
        T::run(&pool, effects).await;
        let folder = std::env::temp_dir().join(format!("keylane-{unique}"));
        fs::create_dir_all(&folder).expect("folder");
        let seed = journal::now();
        println!("{unique}: seed {seed}");
        let journal = Journal::open(&folder.join("producer"), "producer", now).expect("journal");
        let (events, steps, journals) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let cluster = Self {
            url,
            prefix,
            pool,
            outbox,
            journal,
            events,
            lost: BTreeSet::new(),
            folder,
            journals,
            steps,
            dead_instances: BTreeSet::new(),
            transactions: 0,
            mode,
            seed,
            _place,
        };
        T::log_ownership(&cluster.pool, &cluster.prefix).await;
        cluster
    }

    /// Starts a worker and waits until it has joined.
    pub(crate) async fn worker(&mut self) -> Worker {
        self.begin_worker().await.expect("a worker that joins")
    }

    /// Starts a worker of a build and waits until it has joined.
    pub(crate) async fn worker_of(&mut self, build: Build) -> Worker {
        self.begin_worker_of(build).await.expect("a worker that joins")
    }

    /// Brings the tables to the version of a build.
    pub(crate) async fn migrate(&self, build: Build) {
        let mut command = build.command();
        let done = command.args([self.url.as_str(), &self.prefix, "none", "migrate"]).status().await;
        assert!(done.expect("worker").success(), "the migration of {build:?}");
    }

    /// As `worker`, but the process may end before it has joined.
    pub(crate) async fn begin_worker(&mut self) -> Option<Worker> {
        self.begin_worker_of(Build::This).await
    }

    async fn begin_worker_of(&mut self, build: Build) -> Option<Worker> {
        let journal = self.folder.join(format!("worker-{}", self.journals.len()));
        fs::write(&journal, "").expect("journal");
        let log = fs::File::create(journal.with_extension("log")).expect("log");
        let mut child = build
            .command()
            .args([self.url.as_str(), &self.prefix])
            .arg(&journal)
            .arg(self.mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("worker");
        self.journals.push(journal.clone());
        let mut output = BufReader::new(child.stdout.take().expect("output")).lines();
        let line = tokio::time::timeout(PATIENCE, output.next_line()).await.expect("a worker joins in time");
        let instance = line.expect("output")?.strip_prefix("ready ").expect("ready").to_owned();
        Some(Worker::new(instance, journal, child, output))
    }

    pub(crate) async fn workers(&mut self, count: usize) -> Vec<Worker> {
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(self.worker().await);
        }
        self.wait_until_balanced(&workers.iter().collect::<Vec<_>>()).await;
        workers
    }

    /// Schedules records at a rate for a time: ten per transaction, the steps of each key in order.
    pub(crate) async fn feed(&mut self, per_second: u32, seconds: f64) {
        let mut turn = tokio::time::interval(Duration::from_secs(10) / per_second);
        for _ in 0..(f64::from(per_second) * seconds / 10.0) as u32 {
            turn.tick().await;
            self.schedule(10).await;
        }
    }

    /// Schedules this many records in one transaction.
    pub(crate) async fn schedule(&mut self, records: u32) {
        let steps = self.steps(records);
        self.transactions += 1;
        let (outbox, tx) = (self.outbox.clone(), self.transactions);
        let work = async |conn: &mut _| {
            let scheduled = outbox.schedule_all(conn, &steps).await?;
            self.push_scheduled(tx, &steps, &scheduled);
            Ok::<_, keylane::ScheduleError>(scheduled)
        };
        let scheduled = self.outbox.transaction(work).await.expect("schedule");
        self.tell(What::Committed { tx });
        let ids = scheduled.iter().map(|scheduled| scheduled.event_id);
        self.events.extend(steps.iter().map(|step| (step.key, step.step)).zip(ids));
    }

    /// The next steps of keys drawn at random.
    pub(crate) fn steps(&mut self, count: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..count {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (self.seed >> 33) as u32 % KEYS;
            let step = self.steps.entry(key).or_default();
            steps.push(Step { key, step: *step });
            *step += 1;
        }
        steps
    }

    /// Only one producer schedules, so that its lines have the order of its calls.
    fn push_scheduled(&self, tx: u64, steps: &[Step], scheduled: &[Scheduled]) {
        for (step, scheduled) in steps.iter().zip(scheduled) {
            let (call, event, key) = (0, scheduled.event_id, step.key().into_owned());
            let handlers = vec![HANDLER.to_owned()];
            self.tell(What::Scheduling { call, tx, event, key, handlers, delayed: false });
        }
        self.tell(What::Committing { tx });
    }

    pub(crate) fn tell(&self, what: What) {
        self.journal.tell(what).expect("journal");
    }

    /// Freezes a worker.
    pub(crate) async fn pause(&self, worker: &Worker, instance: &str) {
        self.fault(true, "pause", Some(instance));
        T::between_writers(&self.pool, || worker.pause()).await;
    }

    pub(crate) fn wake(&self, worker: &Worker, instance: &str) {
        worker.wake();
        self.fault(false, "pause", Some(instance));
    }

    pub(crate) fn fault(&self, begins: bool, fault: &str, instance: Option<&str>) {
        let (fault, instance) = (fault.to_owned(), instance.map(str::to_owned));
        self.tell(match begins {
            true => What::FaultBegan { fault, instance },
            false => What::FaultEnded { fault, instance },
        });
    }

    /// Writes that instances have ended with their processes: all that have written, except these.
    pub(crate) fn push_deaths(&mut self, alive: &[Worker]) {
        for event in history::read(&self.journals).expect("journals") {
            if let What::CallBegan { instance, .. } = event.what
                && alive.iter().all(|worker| worker.process() != event.process)
                && self.dead_instances.insert(instance.clone())
            {
                self.fault(true, "crash", Some(&instance));
            }
        }
    }

    /// Kills a worker as `kill -9` does.
    pub(crate) async fn kill(&self, worker: Worker) {
        let instance = worker.kill().await;
        self.fault(true, "crash", Some(&instance));
    }

    /// Waits until these instances own all partitions, and their shares differ by one at most.
    pub(crate) async fn wait_until_balanced(&self, workers: &[&Worker]) {
        let what = format!("{} workers share the partitions evenly", workers.len());
        self.wait(&what, async || {
            let mut shares: BTreeMap<String, usize> = workers.iter().map(|w| (w.instance(), 0)).collect();
            for (owner, _) in T::claims(&self.pool, &self.prefix).await {
                match owner.as_deref().and_then(|owner| shares.get_mut(owner)) {
                    Some(share) => *share += 1,
                    None => return false,
                }
            }
            let (least, most) = (shares.values().min(), shares.values().max());
            most.zip(least).is_some_and(|(most, least)| most - least <= 1)
        })
        .await;
    }

    /// Watches the claims beside the feed.
    pub(crate) fn watcher(&self) -> Watcher<T> {
        Watcher { pool: self.pool.clone(), prefix: self.prefix.clone() }
    }

    /// The number of instances that another instance has declared dead.
    pub(crate) async fn dead(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}instance WHERE state = 'DEAD'", self.prefix);
        T::numbers(&self.pool, sql).await[0][0]
    }

    pub(crate) async fn generations(&self) -> i64 {
        T::claims(&self.pool, &self.prefix).await.iter().map(|(_, generation)| generation).sum()
    }

    /// Waits until all that was scheduled is finished.
    pub(crate) async fn wait_until_empty(&self) {
        self.wait("the table is empty", async || {
            let sql = format!("SELECT count(*) FROM {}record", self.prefix);
            T::numbers(&self.pool, sql).await == [[0]]
        })
        .await;
    }

    pub(crate) async fn wait(&self, what: &str, done: impl AsyncFn() -> bool) {
        let started = Instant::now();
        while !done().await {
            let folder = self.folder.display();
            assert!(started.elapsed() < PATIENCE, "in vain: {what}; journals in {folder}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Drops the tables and files of a passed test.
    pub(crate) async fn erase(self) {
        let tables = [
            "meta",
            "record",
            "archive",
            "lane",
            "instance",
            "fence",
            "partition",
            "handler",
            "dedup",
            "start",
            "key",
            "migration",
            "effect",
            "change",
        ];
        for table in tables {
            T::run(&self.pool, format!("DROP TABLE IF EXISTS {}{table}", self.prefix)).await;
        }
        fs::remove_dir_all(&self.folder).expect("folder");
        // On SQLite the database is a file of the test's own.
        let file = self.url.strip_prefix("sqlite://").and_then(|url| url.split('?').next());
        for suffix in ["", "-wal", "-shm"] {
            let _ = file.map(|file| fs::remove_file(format!("{file}{suffix}")));
        }
    }
}
