//! Operations of many processes on a register, under one lock, while some are killed and one is frozen; judged.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::join_all;
use keylane_lock::LockClient;
use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    io::AsyncWriteExt,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    journal::{Did, Journal, operations},
    linear::{Operation, Outcome, judge},
    process::Process,
    register::Register,
    stage::Stage,
    target::{PATIENCE, Target, on_each},
};

on_each! {
    operations_of_processes_that_are_killed_and_frozen_are_linearisable,
}

const TASKS: usize = 4;
/// What befalls the processes, each at an operation of its own.
const FATES: [&str; 4] =
    ["frozen", "killed-before-its-write", "killed-after-its-write", "killed-from-outside"];
/// The numbers of operations of one process.
const NUMBERS: i64 = 1_000_000;

/// The number of operations per database. More by `KEYLANE_LOCK_OPERATIONS`.
fn count_of_operations() -> usize {
    env::var("KEYLANE_LOCK_OPERATIONS").map_or(2_500, |count| count.parse().unwrap())
}

/// The longest time until a process has done its share. Beside other load, 100 operations may take some 10 s.
fn patience() -> Duration {
    5 * PATIENCE * count_of_operations().div_ceil(2_500) as u32
}

/// The folder of a run: the register, and a journal for each process.
struct Folder(PathBuf);

impl Folder {
    fn register(&self) -> PathBuf {
        self.0.join("register")
    }

    fn journal(&self, process: usize) -> PathBuf {
        self.0.join(format!("{process}.jsonl"))
    }
}

/// What a process does: `NUMBER FATE FOLDER`.
pub(crate) async fn work<T: Target>(stage: Stage<T>, task: &str) {
    let [number, fate, folder] = task.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let (number, folder) = (number.parse::<usize>().unwrap(), Folder(folder.into()));
    let journal = Arc::new(Journal::open(&folder.journal(number)));
    let first = (number as i64 + 1) * NUMBERS;
    let next = Arc::new(AtomicI64::new(first));
    let mut tasks = JoinSet::new();
    // A process that will be frozen is in no transaction then, which would keep all others out.
    let count = if fate == "frozen" { 1 } else { TASKS };
    for _ in 0..count {
        let worker = Worker {
            register: Register::at(&folder.register()),
            journal: Arc::clone(&journal),
            fate: fate.to_owned(),
        };
        let (locks, next) = (stage.locks.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            for _ in 0..count_of_operations() / FATES.len() / count {
                let operation = next.fetch_add(1, Relaxed);
                worker.operate::<T>(&locks, operation, operation - first).await;
            }
        });
    }
    tasks.join_all().await;
}

struct Worker {
    register: Register,
    journal: Arc<Journal>,
    fate: String,
}

impl Worker {
    async fn operate<T: Target>(&self, locks: &LockClient<T::Db>, operation: i64, count: i64) {
        let push = |did| self.journal.push(operation, did);
        // Now and then a client gives up at some point of the operation.
        if count % 25 == 0 {
            drop(timeout(Duration::from_micros(count as u64 * 20), locks.lock("one")).await);
        }
        let guard = loop {
            push(Did::Asked);
            match locks.lock("one").await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        let token = guard.token();
        push(Did::Had { token });
        push(Did::Read { value: self.register.read(token) });
        if count == 110 && self.fate == "frozen" {
            self.strike(Signal::STOP);
        }
        if count == 200 && self.fate == "killed-before-its-write" {
            self.strike(Signal::KILL);
        }
        tokio::task::yield_now().await;
        let is_accepted = self.register.write(token, operation);
        if count == 300 && self.fate == "killed-after-its-write" {
            self.strike(Signal::KILL);
        }
        push(Did::Wrote { is_accepted });
        // A holder that was frozen has lost it.
        drop(guard.release().await);
        push(Did::Released);
    }

    /// Stops or kills the own process, in the middle of an operation. It goes on when it is told to: the signal may
    /// take a moment to arrive.
    fn strike(&self, signal: Signal) {
        self.journal.push(0, Did::Stopped);
        kill_process(getpid(), signal).unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
        self.journal.push(0, Did::Resumed);
    }
}

/// Starts a process, sees what befalls it, and starts another in the place of one that was killed.
async fn live<T: Target>(stage: &Stage<T>, folder: &Folder, number: usize, fate: &str) {
    let start =
        |number: usize, fate: &str| Process::start(stage, &format!("{number} {fate} {}", folder.0.display()));
    let mut process = start(number, fate);
    match fate {
        "frozen" => {
            process.stopped_within(patience()).await;
            until_taken_over(&Register::at(&folder.register())).await;
            process.send(Signal::CONT);
            process.child.stdin.as_mut().unwrap().write_all(b"go on\n").await.unwrap();
            process.says_within(patience(), "all").await;
            return;
        }
        "killed-from-outside" => {
            until_written(&folder.journal(number), 50_000).await;
            Journal::open(&folder.journal(number)).push(0, Did::Stopped);
            process.child.kill().await.unwrap();
        }
        _ => {
            let ended = timeout(patience(), process.child.wait()).await.unwrap().unwrap();
            assert!(!ended.success());
        }
    }
    start(number + FATES.len(), "none").says_within(patience(), "all").await;
}

/// Returns when another has the lock.
async fn until_taken_over(register: &Register) {
    let token = register.fence();
    let taken_over = async {
        while register.fence() == token {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(patience(), taken_over).await.unwrap();
}

/// Returns when the file has so many bytes.
async fn until_written(file: &Path, bytes: u64) {
    let written = async {
        while fs::metadata(file).map_or(0, |file| file.len()) < bytes {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(patience(), written).await.unwrap();
}

async fn operations_of_processes_that_are_killed_and_frozen_are_linearisable<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let folder = Folder(env::temp_dir().join(format!("keylane-lock-{}", stage.prefix)));
    fs::create_dir(&folder.0).unwrap();
    let lives = FATES.iter().enumerate().map(|(number, fate)| live(&stage, &folder, number, fate));
    join_all(lives).await;
    let numbers = (0..2 * FATES.len()).filter(|number| folder.journal(*number).exists());
    let history: Vec<Operation> = numbers.flat_map(|number| operations(&folder.journal(number))).collect();
    judge(&history).unwrap_or_else(|problem| panic!("{}: {problem}", folder.0.display()));
    let with = |outcome| history.iter().filter(|operation| operation.outcome == outcome).count();
    let accepted = with(Outcome::Accepted);
    assert!(accepted >= count_of_operations(), "{accepted} of {}", history.len());
    // The history has operations whose process was killed or frozen in the middle.
    assert!(with(Outcome::Unknown) >= 2);
    assert!(with(Outcome::Refused) >= 1);
    fs::remove_dir_all(&folder.0).unwrap();
    stage.end().await;
}
