//! The database crashes while workers deliver, and comes back. The server belongs to the test alone.

use crate::{
    cluster::Cluster,
    database::{MariaDb, Postgres, Target},
    server::Server,
};

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
    // A crash loses the last settles. An instance learns of the crash with its next settle, and the calls that it
    // has made until then are repeated.
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
