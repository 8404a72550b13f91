//! A copy of the database takes over. The copy lacks the last commits.

use crate::{
    cluster::Cluster,
    database::{Postgres, Target},
    server::Server,
};

impl<T: Target> Cluster<T> {
    /// Schedules records that the database will lose. The checker does not judge them.
    async fn schedule_for_nothing(&mut self, records: u32) {
        let steps = self.steps(records);
        let work = async |conn: &mut _| self.outbox.schedule_all(conn, &steps).await;
        let scheduled = self.outbox.transaction(work).await.expect("schedule");
        self.lost.extend(scheduled.iter().map(|scheduled| scheduled.event_id));
    }
}

/// Lost records are gone. Their ids are given to other records, while the workers still have the lost
/// records in memory and outcomes on their way to the database. All that the copy accepts is delivered nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_forgets_commits_loses_nothing_else() {
    let server = Server::start("pg", 17_630);
    let url = server.url("KEYLANE_TEST_POSTGRES_URL");
    let mut cluster =
        Cluster::<Postgres>::at(url, format!("f{}", std::process::id() % 100_000), "plain").await;
    let workers = cluster.workers(3).await;
    cluster.schedule(300).await;
    cluster.wait_until_empty().await;
    server.services(&["copy", "pg"], 0);
    cluster.fault(true, "failover", None);
    for _ in 0..10 {
        cluster.schedule_for_nothing(300).await;
    }
    server.services(&["fail-over", "pg"], 0);
    cluster.schedule(1_000).await;
    cluster.feed(300, 2.0).await;
    cluster.wait_until_empty().await;
    cluster.fault(false, "failover", None);
    cluster.verdict().await;
    for worker in workers {
        assert!(worker.stop().await);
    }
    cluster.erase().await;
}
