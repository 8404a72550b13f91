//! The faults of the broker of `dev/services`.

use std::{fs::File, path::PathBuf, process::Stdio};

use tokio::process::Command;

/// Whoever stops the broker has it alone, among all programs that use this broker.
pub(crate) static BROKER: Broker = Broker;

/// A lock on a file beside the servers, since a lock in memory is known to one program only. It is free again as soon
/// as the file is dropped, whatever ends the program.
pub(crate) struct Broker;

impl Broker {
    /// Nobody stops the broker meanwhile.
    pub(crate) async fn read(&self) -> File {
        Self::hold(File::lock_shared).await
    }

    /// Nobody else uses the broker meanwhile.
    pub(crate) async fn write(&self) -> File {
        Self::hold(File::lock).await
    }

    pub(crate) fn path() -> PathBuf {
        let folder = std::env::var("KEYLANE_SERVICES").expect("KEYLANE_SERVICES is not set");
        PathBuf::from(folder).join("kafka.tests.lock")
    }

    async fn hold(lock: fn(&File) -> std::io::Result<()>) -> File {
        let taken = tokio::task::spawn_blocking(move || {
            let file = File::options().create(true).append(true).open(Self::path())?;
            lock(&file).map(|()| file)
        });
        taken.await.unwrap().unwrap()
    }
}

/// `dev/services COMMAND kafka`.
pub(crate) async fn service(command: &[&str]) {
    let script = std::env::var("KEYLANE_SERVICES_COMMAND").expect("KEYLANE_SERVICES_COMMAND is not set");
    let done = Command::new(script).args(command).stdin(Stdio::null()).output().await.unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// While this lives, the broker is away. A test that fails meanwhile starts it again for the others.
pub(crate) struct Away;

impl Away {
    pub(crate) async fn kill() -> Self {
        service(&["kill", "kafka"]).await;
        Self
    }

    pub(crate) async fn end(self) {
        service(&["start", "kafka"]).await;
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(script) = std::env::var("KEYLANE_SERVICES_COMMAND")
        {
            let _ = std::process::Command::new(script).args(["start", "kafka"]).stdin(Stdio::null()).output();
        }
    }
}
