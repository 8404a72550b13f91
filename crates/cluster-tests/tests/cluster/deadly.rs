//! A record that ends the process that handles it.

use keylane::{RecordId, admin::Filter};
use keylane_checker::What;
use keylane_cluster_tests::event::DEADLY;
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, PATIENCE},
    database::Target,
    stop_all,
    worker::Worker,
};

/// The most processes that the record may end: two before calls are tracked, three that count against it, and
/// two whose calls began before the record was known to be suspect.
const DEATHS: usize = 7;

pub(crate) async fn a_record_that_kills_its_process_is_set_aside<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("dead{}", &store[..2]), "deadly").await;
    let (mut workers, mut deaths): (Vec<Worker>, usize) = (cluster.workers(2).await, 0);
    cluster.schedule(500).await;
    let began = Instant::now();
    let failed: RecordId = loop {
        let before = workers.len();
        workers.retain_mut(|worker| !worker.has_ended());
        deaths += before - workers.len();
        cluster.push_deaths(&workers);
        while workers.len() < 2 {
            match cluster.begin_worker().await {
                Some(worker) => workers.push(worker),
                None => {
                    deaths += 1;
                    cluster.push_deaths(&workers);
                }
            }
        }
        if let [failed] =
            &cluster.outbox.admin().failed(&Filter::all(), 0, 10).await.expect("failed records")[..]
        {
            let error = failed.last_error.as_deref().unwrap_or_default();
            assert!(error.starts_with("crashed: the process ended 3 times"), "{error}");
            assert_eq!((&*failed.lane.key, failed.attempts), (&*format!("key-{}", DEADLY.0), 1));
            break failed.id;
        }
        assert!(began.elapsed() < PATIENCE, "{deaths} processes ended and the record is still tried");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    println!("{deaths} processes ended in {:?}", began.elapsed());
    assert!((5..=DEATHS).contains(&deaths), "{deaths} processes ended");
    cluster.tell(What::Discarded { id: failed });
    assert!(cluster.outbox.admin().discard(failed).await.expect("discard"));
    let report = cluster.verdict().await;
    report.require(["crash in a call"]).expect("a crash in a call");
    stop_all(workers).await;
    cluster.erase().await;
}
