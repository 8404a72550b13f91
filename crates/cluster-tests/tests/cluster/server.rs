//! A server for one test alone.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

/// A private server. Dropping it stops the server and deletes the data.
pub(crate) struct Server {
    name: &'static str,
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start(name: &'static str, port_base: u16) -> Self {
        let folder = std::env::temp_dir().join(format!("kl-{name}-{port_base}-{}", std::process::id()));
        let server = Self { name, folder };
        server.services(&["start", name], port_base);
        server
    }

    /// Runs `dev/services` for this server.
    pub(crate) fn services(&self, arguments: &[&str], port_base: u16) -> Output {
        let command = std::env::var("KEYLANE_SERVICES_COMMAND")
            .expect("KEYLANE_SERVICES_COMMAND is not set: run `eval \"$(dev/services env)\"` first");
        let output = Command::new(command)
            .args(arguments)
            .env("KEYLANE_SERVICES", &self.folder)
            .env("KEYLANE_PORT_BASE", port_base.to_string())
            .output()
            .expect("dev/services");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The value of a variable that `dev/services env` prints.
    pub(crate) fn url(&self, variable: &str) -> String {
        let output = self.services(&["env", self.name], 0);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(variable)).expect("an address");
        line.split_once('=').map(|(_, url)| url.trim_matches('\'').to_owned()).expect("an address")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.services(&["wipe", self.name], 0);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
