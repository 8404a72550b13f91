//! Two builds side by side: the schema of the next build, processes of the next build beside those of this one,
//! and the way back.
//!
//! In most runs both builds are this one, and the schema stays as it is. `dev/two-builds` makes another build, whose
//! schema is one version ahead.

use crate::{
    cluster::Cluster,
    database::Target,
    stop_all,
    worker::{Build, Worker},
};

pub(crate) async fn an_upgrade_and_its_rollback_lose_and_repeat_nothing<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("next{}", &store[..2]), "plain").await;
    let mut workers = cluster.workers(3).await;
    cluster.feed(200, 0.5).await;
    cluster.migrate(Build::Next).await;
    cluster.feed(200, 0.5).await;
    for build in [Build::Next, Build::This] {
        replace(&mut cluster, &mut workers, build).await;
        // A second migration, by either build, leaves the tables as they are.
        cluster.migrate(build).await;
        cluster.feed(200, 0.5).await;
    }
    cluster.verdict().await;
    stop_all(workers).await;
    cluster.erase().await;
}

/// Replaces one worker after the other.
async fn replace<T: Target>(cluster: &mut Cluster<T>, workers: &mut Vec<Worker>, build: Build) {
    for _ in 0..workers.len() {
        workers.push(cluster.worker_of(build).await);
        let old = workers.remove(0);
        let (graceful, ()) = tokio::join!(old.stop(), cluster.feed(200, 0.5));
        assert!(graceful, "before a worker of {build:?}");
    }
}
