//! Processes that share a lock: many at work, one that is killed, one that is frozen.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    stage::{LEASE, Stage},
    target::{OnMariaDb, OnMySql, OnPostgres, OnSqlite, PATIENCE, Target, on_each},
};

on_each!(
    processes_never_overlap_and_keep_the_order_of_their_tokens,
    a_killed_holder_frees_the_lock_within_its_lease,
    a_frozen_holder_is_fenced_by_its_token,
);

const PROCESSES: usize = 3;
const TASKS: usize = 4;
const ROUNDS: usize = 12;
/// Tells a process of this test binary what it is.
const WORKER: &str = "KEYLANE_LOCK_TEST_WORKER";

/// Writes as well as the token allows, as a store does that is fenced.
fn fenced_write(token: i64) -> String {
    format!(
        "UPDATE {{}}register SET value = {token}, fence = {token} WHERE name = 'one' AND fence <= {token}"
    )
}

/// Each task takes the lock again and again, and writes when it is inside into a file that all processes share.
async fn work<T: Target>(stage: Stage<T>, log: PathBuf) {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (locks, log) = (stage.locks.clone(), log.clone());
        tasks.spawn(async move {
            // One write with O_APPEND a line: the order in the file is the order in time.
            let write = |line: String| {
                let mut file = fs::File::options().append(true).open(&log).unwrap();
                file.write_all(line.as_bytes()).unwrap();
            };
            for _ in 0..ROUNDS {
                let guard = locks.request("one").timeout(PATIENCE).lock().await.unwrap();
                write(format!("in {}\n", guard.token()));
                tokio::task::yield_now().await;
                write(format!("out {}\n", guard.token()));
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// Holds the lock, says so, and writes when it is told to.
async fn hold<T: Target>(stage: Stage<T>) {
    let guard = stage.locks.lock("one").await.unwrap();
    eprintln!("held {}", guard.token());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let is_lost = timeout(Duration::ZERO, guard.lost()).await.is_ok();
        let is_held = guard.is_held();
        stage.execute(&fenced_write(guard.token())).await;
        eprintln!("wrote, held {is_held}, lost {is_lost}");
    }
}

async fn act<T: Target>(prefix: &str, log: &str) {
    let stage = Stage::<T>::at(prefix.to_owned(), "READ COMMITTED", |builder| builder).await.unwrap();
    match log {
        "hold" => hold(stage).await,
        log => work(stage, Path::new(log).to_owned()).await,
    }
    eprintln!("all");
}

/// What a process does that was started by a case; in a run of the tests it does nothing.
#[tokio::test]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    let [target, prefix, log] = what.split(' ').collect::<Vec<_>>().try_into().unwrap();
    match target {
        name if name.ends_with("OnPostgres") => act::<OnPostgres>(prefix, log).await,
        name if name.ends_with("OnMariaDb") => act::<OnMariaDb>(prefix, log).await,
        name if name.ends_with("OnMySql") => act::<OnMySql>(prefix, log).await,
        _ => act::<OnSqlite>(prefix, log).await,
    }
}

struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Worker {
    fn start<T: Target>(stage: &Stage<T>, log: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crashes::worker", "--nocapture"])
            .env(WORKER, format!("{} {} {log}", std::any::type_name::<T>(), stage.prefix))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that begins so, without that beginning.
    async fn says(&mut self, beginning: &str) -> String {
        let mut said = Vec::new();
        let line = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if let Some(rest) = line.strip_prefix(beginning) {
                    return Some(rest.to_owned());
                }
                said.push(line);
            }
            None
        };
        let line = timeout(PATIENCE, line).await;
        line.ok().flatten().unwrap_or_else(|| panic!("not {beginning:?}, but {said:?}"))
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

async fn processes_never_overlap_and_keep_the_order_of_their_tokens<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let log = env::temp_dir().join(format!("keylane-lock-{}.log", stage.prefix));
    fs::write(&log, "").unwrap();
    let mut workers: Vec<Worker> =
        (0..PROCESSES).map(|_| Worker::start(&stage, log.to_str().unwrap())).collect();
    for worker in &mut workers {
        worker.says("all").await;
    }
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 * PROCESSES * TASKS * ROUNDS);
    let mut last = 0;
    for pair in lines.chunks(2) {
        let token =
            |line: &str, word: &str| line.strip_prefix(word).and_then(|token| token.parse::<i64>().ok());
        let (came, went) = (token(pair[0], "in "), token(pair[1], "out "));
        assert!(came.is_some() && came == went, "an overlap: {pair:?}");
        assert!(came.unwrap() > last, "out of order: {pair:?} after {last}");
        last = came.unwrap();
    }
    fs::remove_file(&log).unwrap();
    stage.end().await;
}

async fn a_killed_holder_frees_the_lock_within_its_lease<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let mut worker = Worker::start(&stage, "hold");
    let token: i64 = worker.says("held ").await.parse().unwrap();
    let waiter = tokio::spawn({
        let locks = stage.locks.clone();
        async move { locks.lock("one").await.unwrap() }
    });
    stage.queued("one", 2).await;
    let killed = Instant::now();
    worker.child.kill().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(killed.elapsed() < LEASE + Duration::from_secs(1), "{:?}", killed.elapsed());
    assert!(guard.token() > token);
    guard.release().await.unwrap();
    stage.end().await;
}

async fn a_frozen_holder_is_fenced_by_its_token<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.execute("INSERT INTO {}register VALUES ('one', 0, 0)").await;
    let value = async || stage.number("SELECT value FROM {}register").await;
    let mut worker = Worker::start(&stage, "hold");
    let token: i64 = worker.says("held ").await.parse().unwrap();
    worker.child.stdin.as_mut().unwrap().write_all(b"write\n").await.unwrap();
    assert_eq!(worker.says("wrote, ").await, "held true, lost false");
    assert_eq!(value().await, token);
    worker.send(Signal::STOP);
    let frozen = Instant::now();
    let guard = stage.locks.lock("one").await.unwrap();
    assert!(frozen.elapsed() < LEASE + Duration::from_secs(1), "{:?}", frozen.elapsed());
    stage.execute(&fenced_write(guard.token())).await;
    // It goes on where it stood, and knows that it is late; if it did not, its token would be refused.
    worker.child.stdin.as_mut().unwrap().write_all(b"write\n").await.unwrap();
    worker.send(Signal::CONT);
    assert_eq!(worker.says("wrote, ").await, "held false, lost true");
    assert_eq!(value().await, guard.token());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    stage.end().await;
}
