//! The database goes away in the middle and comes back; on a server of the test's own.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use crate::{
    cluster::Cluster,
    database::{MariaDb, Postgres, Target},
};

/// A private server, taken down when dropped.
struct Server {
    name: &'static str,
    folder: PathBuf,
}

impl Server {
    fn start(name: &'static str, port_base: u16) -> Self {
        let folder = std::env::temp_dir().join(format!("kl-{name}-{}", std::process::id()));
        let server = Self { name, folder };
        server.services(&["start", name], port_base);
        server
    }

    fn services(&self, arguments: &[&str], port_base: u16) -> Output {
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

    /// The address out of what `env` prints.
    fn url(&self, variable: &str) -> String {
        let output = self.services(&["env", self.name], 0);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(variable)).expect("an address");
        line.split_once('=').map(|(_, url)| url.trim_matches('\'').to_owned()).expect("an address")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.services(&["stop", self.name], 0);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn outlives<T: Target>(name: &'static str, variable: &str, port_base: u16) {
    let server = Server::start(name, port_base);
    let mut cluster = Cluster::<T>::at(server.url(variable), format!("r{}", &name[..2]), "plain").await;
    let workers = cluster.workers(3).await;
    for _ in 0..30 {
        cluster.schedule(100).await;
    }
    cluster.fault(true, "outage", None);
    server.services(&["kill", name], 0);
    server.services(&["start", name], 0);
    cluster.feed(200, 1.0).await;
    // A crash forgets the last settles, and instances learn of that with their next one: until then the calls that they
    // make are repeated.
    cluster.fault(false, "outage", None);
    cluster.verdict().await;
    assert_eq!(cluster.dead().await, 0, "an outage makes nobody declare a peer dead");
    for worker in workers {
        assert!(worker.stop().await);
    }
    cluster.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_outlives_a_crash_of_postgres() {
    outlives::<Postgres>("pg", "KEYLANE_TEST_POSTGRES_URL", 17_430).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_outlives_a_crash_of_mariadb() {
    outlives::<MariaDb>("mariadb", "KEYLANE_TEST_MARIADB_URL", 17_530).await;
}
