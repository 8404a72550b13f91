//! A relay that runs, as its supervisor sees it: signals, lines of its log, its exit code.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use crate::keylane::File;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

/// A settings file of a test's own.
pub(crate) struct Settings {
    folder: File,
}

impl Settings {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let settings = Self { folder: File::new(&format!("relay-{name}")) };
        settings.write(text);
        settings
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.0.join("keylane.toml")
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    /// Runs `keylane` with these words and this file, to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command();
        command.args(words);
        let done = tokio::process::Command::from(command).kill_on_drop(true).output();
        timeout(LIMIT, done).await.expect("the command does not end").unwrap()
    }

    /// As above; what it prints if it goes well.
    pub(crate) async fn printed(&self, words: &[&str]) -> String {
        let done = self.run(words).await;
        assert!(done.status.success(), "{words:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// A relay that has begun.
    pub(crate) fn spawn(&self) -> Relay {
        Self::spawned(self.command())
    }

    /// A relay that delivers, and writes one line per signal, even for signals that are usually logged once per minute.
    pub(crate) async fn start_with_all_signals(&self) -> Relay {
        let mut command = self.command();
        command.env("RUST_LOG", "info,sqlx=warn,keylane=trace");
        let mut relay = Self::spawned(command);
        relay.says("the relay delivers").await;
        relay
    }

    fn spawned(mut command: Command) -> Relay {
        command.arg("relay").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, log) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = tell.send(line);
            }
        });
        Relay { child, log, passed: Vec::new() }
    }

    /// A relay that delivers.
    pub(crate) async fn start(&self) -> Relay {
        let mut relay = self.spawn();
        relay.says("the relay delivers").await;
        relay
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
        command.arg("--config").arg(self.path()).env_remove("DATABASE_URL").env_remove("RUST_LOG");
        command.env("RELAY_PASSWORD", "hunter2");
        command
    }
}

pub(crate) struct Relay {
    child: Child,
    /// The lines are read as they come. If nobody reads the log of a relay, the relay stands still.
    log: UnboundedReceiver<String>,
    /// The lines before those that were waited for: the tasks of a relay log in any order.
    passed: Vec<String>,
}

impl Relay {
    /// Waits for a line of the log with this text, and takes it.
    pub(crate) async fn says(&mut self, text: &str) -> Value {
        let found = async {
            if let Some(place) = self.passed.iter().position(|line| line.contains(text)) {
                return Some(self.passed.remove(place));
            }
            while let Some(line) = self.log.recv().await {
                if line.contains(text) {
                    return Some(line);
                }
                self.passed.push(line);
            }
            None
        };
        let found = timeout(LIMIT, found).await.ok().flatten();
        let line = found.unwrap_or_else(|| panic!("no {text:?} in {:#?}", self.passed));
        serde_json::from_str(&line).unwrap()
    }

    /// Takes the lines that are there.
    pub(crate) fn catch_up(&mut self) {
        self.passed.clear();
        while self.log.try_recv().is_ok() {}
    }

    pub(crate) async fn signal(&self, signal: &str) {
        let process = self.child.id().unwrap().to_string();
        let sent = tokio::process::Command::new("kill").args(["-s", signal, &process]).status();
        assert!(sent.await.unwrap().success());
    }

    /// Waits for its end; `None` if a signal has ended it.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let ended = async {
            while self.log.recv().await.is_some() {}
            self.child.wait().await.unwrap().code()
        };
        timeout(LIMIT, ended).await.expect("the relay does not end")
    }
}
