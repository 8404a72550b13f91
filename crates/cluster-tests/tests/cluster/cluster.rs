//! A cluster of worker processes, the feed of records, and what is waited for.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Stdio, time::Duration};

use keylane::Outbox;
use keylane_cluster_tests::{
    event::Step,
    ledger::{self, Verdict},
    settings,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::database::Target;

/// Nothing that is waited for takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const KEYS: u32 = 50;

/// Clusters at once: a worker that gets no processor is rightly declared dead.
static PLACES: Semaphore = Semaphore::const_new(2);

/// Which build of the worker a process is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Build {
    /// This one.
    This,
    /// The next one, if `KEYLANE_NEXT_WORKER` says where it is, as `dev/two-builds` does; else this one, too.
    Next,
}

impl Build {
    fn command(self) -> Command {
        let this = env!("CARGO_BIN_EXE_keylane-worker").to_owned();
        Command::new(match self {
            Self::This => this,
            Self::Next => std::env::var("KEYLANE_NEXT_WORKER").unwrap_or(this),
        })
    }
}

/// One worker process.
pub(crate) struct Worker {
    pub(crate) instance: String,
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32)).expect("a running worker");
        kill_process(pid, signal).expect("signal");
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("kill");
    }

    /// Asks for a graceful shutdown; whether it was one.
    pub(crate) async fn stop(mut self) -> bool {
        let mut input = self.child.stdin.take().expect("input");
        input.write_all(b"stop\n").await.expect("stop");
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("an answer to stop");
        let graceful = line.expect("output").as_deref() == Some("stopped graceful");
        self.child.wait().await.expect("end");
        graceful
    }
}

/// A database with workers on it.
pub(crate) struct Cluster<T: Target> {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) pool: T::Pool,
    pub(crate) scheduled: BTreeMap<u32, u32>,
    pub(crate) outbox: Outbox<T::Db>,
    folder: PathBuf,
    ledgers: Vec<PathBuf>,
    mode: &'static str,
    seed: u64,
    _place: SemaphorePermit<'static>,
}

/// Looks at the claims.
pub(crate) struct Watcher<T: Target> {
    pool: T::Pool,
    prefix: String,
}

impl<T: Target> Watcher<T> {
    /// Waits until living owners have all that this instance had; how long that took.
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
        let outbox =
            Outbox::builder(pool.clone()).config(settings::config(&prefix)).build().await.expect("outbox");
        outbox.migrate().await.expect("migrate");
        let effects = format!("CREATE TABLE {prefix}effect (k BIGINT NOT NULL, step BIGINT NOT NULL)");
        T::run(&pool, effects).await;
        let folder = std::env::temp_dir().join(format!("keylane-{unique}"));
        fs::create_dir_all(&folder).expect("folder");
        let seed = ledger::now();
        println!("{unique}: seed {seed}");
        let scheduled = (0..KEYS).map(|key| (key, 0)).collect();
        Self { url, prefix, pool, scheduled, outbox, folder, ledgers: Vec::new(), mode, seed, _place }
    }

    /// Starts a worker and waits until it has joined.
    pub(crate) async fn worker(&mut self) -> Worker {
        self.begin_worker().await.expect("a worker that joins")
    }

    /// The same of a build.
    pub(crate) async fn worker_of(&mut self, build: Build) -> Worker {
        self.begin_worker_of(build).await.expect("a worker that joins")
    }

    /// Brings the tables to the version of a build.
    pub(crate) async fn migrate(&self, build: Build) {
        let mut command = build.command();
        let done = command.args([self.url.as_str(), &self.prefix, "none", "migrate"]).status().await;
        assert!(done.expect("worker").success(), "the migration of {build:?}");
    }

    /// As `worker`, but it may end before it has said that it joined.
    pub(crate) async fn begin_worker(&mut self) -> Option<Worker> {
        self.begin_worker_of(Build::This).await
    }

    async fn begin_worker_of(&mut self, build: Build) -> Option<Worker> {
        let ledger = self.folder.join(format!("ledger-{}", self.ledgers.len()));
        fs::write(&ledger, "").expect("ledger");
        let log = fs::File::create(ledger.with_extension("log")).expect("log");
        let mut child = build
            .command()
            .args([self.url.as_str(), &self.prefix])
            .arg(&ledger)
            .arg(self.mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("worker");
        self.ledgers.push(ledger);
        let mut output = BufReader::new(child.stdout.take().expect("output")).lines();
        let line = tokio::time::timeout(PATIENCE, output.next_line()).await.expect("a worker joins in time");
        let instance = line.expect("output")?.strip_prefix("ready ").expect("ready").to_owned();
        Some(Worker { instance, child, output })
    }

    pub(crate) async fn workers(&mut self, count: usize) -> Vec<Worker> {
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(self.worker().await);
        }
        self.wait_until_balanced(&workers.iter().collect::<Vec<_>>()).await;
        workers
    }

    /// Schedules records at a rate for a time, ten a transaction, each key's steps in order.
    pub(crate) async fn feed(&mut self, per_second: u32, seconds: f64) {
        let mut turn = tokio::time::interval(Duration::from_secs(10) / per_second);
        for _ in 0..(f64::from(per_second) * seconds / 10.0) as u32 {
            turn.tick().await;
            self.schedule(10).await;
        }
    }

    /// Schedules so many records in one transaction.
    pub(crate) async fn schedule(&mut self, records: u32) {
        let mut steps = Vec::new();
        for _ in 0..records {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (self.seed >> 33) as u32 % KEYS;
            let step = self.scheduled.entry(key).or_default();
            steps.push(Step { key, step: *step });
            *step += 1;
        }
        let outbox = self.outbox.clone();
        let work = async |tx: &mut _| outbox.schedule_all(tx, &steps).await;
        self.outbox.transaction(work).await.expect("schedule");
    }

    pub(crate) fn total(&self) -> u32 {
        self.scheduled.values().sum()
    }

    /// Waits until every owner is one of these and their shares differ by one at most.
    pub(crate) async fn wait_until_balanced(&self, workers: &[&Worker]) {
        let what = format!("{} workers share the partitions evenly", workers.len());
        self.wait(&what, async || {
            let mut shares: BTreeMap<&str, usize> =
                workers.iter().map(|w| (w.instance.as_str(), 0)).collect();
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

    /// Instances that another has declared dead.
    pub(crate) async fn dead(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}instance WHERE state = 'DEAD'", self.prefix);
        T::numbers(&self.pool, sql).await[0][0]
    }

    pub(crate) async fn generations(&self) -> i64 {
        T::claims(&self.pool, &self.prefix).await.iter().map(|(_, generation)| generation).sum()
    }

    /// Waits until all that was scheduled is finished, and judges the ledgers.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.wait("everything is delivered", async || self.judge().lost.is_empty()).await;
        self.wait("the table is empty", async || {
            let sql = format!("SELECT count(*) FROM {}record", self.prefix);
            T::numbers(&self.pool, sql).await == [[0]]
        })
        .await;
        self.judge()
    }

    pub(crate) fn judge(&self) -> Verdict {
        ledger::judge(&self.ledgers, &self.scheduled).expect("ledgers")
    }

    pub(crate) async fn wait(&self, what: &str, done: impl AsyncFn() -> bool) {
        let started = Instant::now();
        while !done().await {
            let folder = self.folder.display();
            assert!(started.elapsed() < PATIENCE, "in vain: {what}; {:?}; ledgers in {folder}", self.judge());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Takes away what a passed test has made.
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
