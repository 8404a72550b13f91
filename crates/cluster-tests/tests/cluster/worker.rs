//! A worker process, and the signals that a test sends to it.

use std::{fs, path::PathBuf};

use keylane_checker::{What, history};
use keylane_cluster_tests::{
    journal::{LAPSE, identity_of, now},
    settings::STALE,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::{
    io::{AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::cluster::PATIENCE;

/// The build of a worker process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Build {
    /// This build.
    This,
    /// The next build, if `KEYLANE_NEXT_WORKER` has its path, as in `dev/two-builds`; else this build, too.
    Next,
}

impl Build {
    pub(crate) fn command(self) -> Command {
        let this = env!("CARGO_BIN_EXE_keylane-worker").to_owned();
        Command::new(match self {
            Self::This => this,
            Self::Next => std::env::var("KEYLANE_NEXT_WORKER").unwrap_or(this),
        })
    }
}

/// One worker process.
pub(crate) struct Worker {
    /// The identity with which it joined first.
    first_instance: String,
    journal: PathBuf,
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn new(
        first_instance: String,
        journal: PathBuf,
        child: Child,
        output: Lines<BufReader<ChildStdout>>,
    ) -> Self {
        Self { first_instance, journal, child, output }
    }

    /// Its identity. A worker that was evicted has joined with another one.
    pub(crate) fn instance(&self) -> String {
        fs::read_to_string(identity_of(&self.journal)).unwrap_or_else(|_| self.first_instance.clone())
    }

    fn pid(&self) -> Pid {
        self.child.id().and_then(|id| Pid::from_raw(id as i32)).expect("a running worker")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal");
    }

    /// The name of the worker in the journals.
    pub(crate) fn process(&self) -> String {
        format!("worker-{}", self.child.id().expect("a running worker"))
    }

    /// Freezes the process. Returns when it has stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), stopped).expect("it stops");
    }

    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Returns the identity that has died.
    pub(crate) async fn kill(mut self) -> String {
        self.child.kill().await.expect("kill");
        self.instance()
    }

    /// Whether the lease of the worker has lapsed so late that an eviction may have come after this time.
    fn has_lapsed(&self, from: u64) -> bool {
        let history = history::read([&self.journal]).expect("journal");
        let late = history.iter().filter(|event| event.at + STALE.as_nanos() as u64 >= from);
        late.into_iter().any(|event| matches!(&event.what, What::FaultBegan { fault, .. } if fault == LAPSE))
    }

    /// Asks for a graceful shutdown. Returns whether the shutdown was graceful, or an eviction may have cut it short.
    pub(crate) async fn stop(mut self) -> bool {
        let asked = now();
        let mut input = self.child.stdin.take().expect("input");
        input.write_all(b"stop\n").await.expect("stop");
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("an answer to stop");
        let graceful = line.expect("output").as_deref() == Some("stopped graceful");
        self.child.wait().await.expect("end");
        graceful || self.has_lapsed(asked)
    }
}
