//! The faults of the broker of `dev/services`.

use std::process::Stdio;

use tokio::{process::Command, sync::RwLock};

/// Whoever stops the broker has it alone.
pub(crate) static BROKER: RwLock<()> = RwLock::const_new(());

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
