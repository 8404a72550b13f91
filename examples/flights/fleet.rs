//! The replicas as processes: this program, started again.

use std::{fs::File, io, path::PathBuf, process::Stdio, time::Duration};

use tokio::process::{Child, Command};

/// A replica that runs.
struct Replica {
    number: usize,
    /// Killed when it is dropped: no child outlives this process. Its standard input is a pipe from
    /// here, so that it also ends if this process is killed.
    child: Child,
}

/// All replicas that run.
pub(crate) struct Fleet {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) dir: PathBuf,
    running: Vec<Replica>,
}

impl Fleet {
    pub(crate) fn new(url: String, prefix: String, dir: PathBuf) -> Self {
        Self { url, prefix, dir, running: Vec::new() }
    }

    pub(crate) fn start(&mut self, number: usize) -> io::Result<()> {
        let log = File::create(self.dir.join(format!("replica-{number}.log")))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["--replica", &number.to_string(), "--database-url", &self.url, "--prefix", &self.prefix])
            .arg("--dir")
            .arg(&self.dir)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.running.push(Replica { number, child });
        Ok(())
    }

    /// Kills a replica as `kill -9` does, and waits until it is dead: it has no chance to say goodbye.
    pub(crate) async fn kill(&mut self, number: usize) -> io::Result<()> {
        let place = self.running.iter().position(|replica| replica.number == number);
        match place.map(|place| self.running.swap_remove(place)) {
            Some(mut replica) => replica.child.kill().await,
            None => Err(io::Error::other(format!("replica {number} does not run"))),
        }
    }

    /// Replicas that have ended without being asked to.
    pub(crate) fn fallen(&mut self) -> io::Result<Vec<usize>> {
        let mut fallen = Vec::new();
        for replica in &mut self.running {
            if replica.child.try_wait()?.is_some() {
                fallen.push(replica.number);
            }
        }
        self.running.retain(|replica| !fallen.contains(&replica.number));
        Ok(fallen)
    }

    /// Asks all replicas to stop and waits for them. Returns those that did not do so in good order.
    pub(crate) async fn stop(&mut self) -> io::Result<Vec<usize>> {
        for replica in &mut self.running {
            drop(replica.child.stdin.take());
        }
        let mut bad = Vec::new();
        for mut replica in self.running.drain(..) {
            let ended = tokio::time::timeout(Duration::from_secs(10), replica.child.wait()).await;
            match ended {
                Ok(Ok(status)) if status.success() => {}
                _ => bad.push(replica.number),
            }
        }
        Ok(bad)
    }
}
