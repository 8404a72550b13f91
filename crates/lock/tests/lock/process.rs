//! Processes of a case: this test binary again, told by its environment what to do.

use std::{env, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use crate::{
    crashes, history,
    stage::{LEASE, Stage},
    target::{OnMariaDb, OnMySql, OnPostgres, OnSqlite, PATIENCE, Target},
};

/// Tells a process of this test binary what it is.
const PROCESS: &str = "KEYLANE_LOCK_TEST_PROCESS";

/// What a process does that was started by a case; in a run of the tests it does nothing.
#[tokio::test]
async fn process() {
    let Ok(what) = env::var(PROCESS) else { return };
    let [target, prefix, task] = what.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    match target {
        name if name.ends_with("OnPostgres") => act::<OnPostgres>(prefix, task).await,
        name if name.ends_with("OnMariaDb") => act::<OnMariaDb>(prefix, task).await,
        name if name.ends_with("OnMySql") => act::<OnMySql>(prefix, task).await,
        _ => act::<OnSqlite>(prefix, task).await,
    }
}

async fn act<T: Target>(prefix: &str, task: &str) {
    let stage = Stage::<T>::at(prefix.to_owned(), "READ COMMITTED", LEASE).await.unwrap();
    match task {
        "hold" => crashes::hold(stage).await,
        task => history::work(stage, task).await,
    }
    eprintln!("all");
}

pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Process {
    pub(crate) fn start<T: Target>(stage: &Stage<T>, task: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "process::process", "--nocapture"])
            .env(PROCESS, format!("{} {} {task}", std::any::type_name::<T>(), stage.prefix))
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
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        self.says_within(PATIENCE, beginning).await
    }

    pub(crate) async fn says_within(&mut self, patience: Duration, beginning: &str) -> String {
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
        let line = timeout(patience, line).await;
        line.ok().flatten().unwrap_or_else(|| panic!("not {beginning:?}, but {said:?}"))
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Returns when a signal has stopped it.
    pub(crate) async fn stopped_within(&self, patience: Duration) {
        let id = self.id();
        let wait = tokio::task::spawn_blocking(move || waitpid(Some(id), WaitOptions::UNTRACED));
        let (_, status) = timeout(patience, wait).await.unwrap().unwrap().unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap()
    }
}
