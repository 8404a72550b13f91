//! Claimed mode: processes that are killed or frozen while they hold claims.

use std::{collections::BTreeMap, time::Duration};

use keylane::admin::Filter;
use keylane_checker::{End, What, history};
use keylane_cluster_tests::{
    event::DEADLY,
    settings::{CLAIM_LEASE, TRANSACTIONS},
};
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, PATIENCE},
    database::Target,
    stop_all,
    worker::Worker,
};

/// One call of a handler, as the journal of its process has it.
#[derive(Debug)]
struct Call {
    at: u64,
    process: String,
    token: i64,
    succeeded: bool,
}

impl<T: Target> Cluster<T> {
    async fn claimers(&mut self, count: usize) -> Vec<Worker> {
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(self.worker().await);
        }
        workers
    }

    /// How many records this worker has claimed.
    async fn claims_of(&self, worker: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {}record WHERE lock_owner = '{worker}'", self.prefix);
        T::numbers(&self.pool, sql).await[0][0]
    }

    /// All calls by their events, in the order in which they began.
    fn calls(&self) -> BTreeMap<Uuid, Vec<Call>> {
        let history = history::read(&self.journals).expect("journals");
        let succeeded = |call: u64, process: &str| {
            history.iter().any(|event| match &event.what {
                What::CallEnded { call: ended, ends } => {
                    *ended == call && event.process == process && ends[..] == [End::Ok]
                }
                _ => false,
            })
        };
        let mut calls: BTreeMap<Uuid, Vec<Call>> = BTreeMap::new();
        for event in &history {
            let What::CallBegan { call, records, .. } = &event.what else { continue };
            calls.entry(records[0].event).or_default().push(Call {
                at: event.at,
                process: event.process.clone(),
                token: records[0].generation,
                succeeded: succeeded(*call, &event.process),
            });
        }
        calls.values_mut().for_each(|calls| calls.sort_by_key(|call| call.at));
        calls
    }

    /// Each event was called until a call succeeded, under tokens that grow, and again only after a call of the
    /// process with the fault. Returns how many events were called again.
    fn assert_called(&self, faulty: &str) -> usize {
        let calls = self.calls();
        for (place, event) in &self.events {
            let of = calls.get(event).unwrap_or_else(|| panic!("{place:?} was never called"));
            assert!(of.last().is_some_and(|call| call.succeeded), "{place:?}: {of:?}");
            assert!(of.is_sorted_by(|one, next| one.token < next.token), "{place:?}: {of:?}");
            let (_, repeated) = of.split_last().expect("a call");
            assert!(repeated.iter().all(|call| call.process == faulty), "{place:?}: {of:?}");
        }
        assert_eq!(calls.len(), self.events.len(), "nothing else was called");
        calls.values().filter(|of| of.len() > 1).count()
    }
}

pub(crate) async fn claims_of_a_killed_worker_come_again_after_the_lease<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("ckil{}", &store[..2]), "claimed").await;
    let mut workers = cluster.claimers(3).await;
    cluster.feed(200, 1.0).await;
    let killed = workers.remove(0);
    let (process, owner) = (killed.process(), killed.instance());
    for _ in 0..10 {
        cluster.schedule(150).await;
    }
    cluster.wait("the worker has claims", async || cluster.claims_of(&owner).await > 0).await;
    cluster.kill(killed).await;
    let died = Instant::now();
    let left = cluster.claims_of(&owner).await;
    assert!(left > 0, "it has died with claims");
    cluster.feed(200, 1.0).await;
    cluster.wait("its claims come again", async || cluster.claims_of(&owner).await == 0).await;
    println!("{left} claims came again within {:?}, the lease is {CLAIM_LEASE:?}", died.elapsed());
    cluster.wait_until_empty().await;
    let again = cluster.assert_called(&process);
    assert!(again as i64 <= left, "{again} of {left}");
    stop_all(workers).await;
    cluster.erase().await;
}

/// The leases of the record run out twice before it is a suspect, and its three crashes then count.
const DEATHS: usize = 5;

/// Innocents are claimed beside it each time; none of them is set aside.
pub(crate) async fn a_claimed_record_that_kills_its_process_is_set_aside<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("cdea{}", &store[..2]), "claimed-deadly").await;
    let (mut workers, mut deaths) = (cluster.claimers(2).await, 0);
    cluster.schedule(500).await;
    let began = Instant::now();
    let failed = loop {
        let before = workers.len();
        workers.retain_mut(|worker| !worker.has_ended());
        deaths += before - workers.len();
        while workers.len() < 2 {
            match cluster.begin_worker().await {
                Some(worker) => workers.push(worker),
                None => deaths += 1,
            }
        }
        cluster.schedule(5).await;
        let failed = cluster.outbox.admin().failed(&Filter::all(), 0, 10).await.expect("failed records");
        if let Some(failed) = failed.into_iter().next() {
            break failed;
        }
        assert!(began.elapsed() < PATIENCE, "{deaths} processes ended and the record is still tried");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    println!("{deaths} processes ended in {:?}", began.elapsed());
    let error = failed.last_error.as_deref().unwrap_or_default();
    assert!(error.starts_with("crashed: the process ended 3 times"), "{error}");
    assert_eq!((&*failed.lane.key, failed.attempts), (&*format!("key-{}", DEADLY.0), 1));
    assert_eq!(deaths, DEATHS);
    assert!(cluster.outbox.admin().discard(failed.id).await.expect("discard"));
    cluster.wait_until_empty().await;
    let (calls, deadly) = (cluster.calls(), cluster.events[&DEADLY]);
    for (place, event) in &cluster.events {
        let succeeded = calls[event].iter().any(|call| call.succeeded);
        assert_eq!(succeeded, *event != deadly, "{place:?}: {:?}", calls[event]);
    }
    assert_eq!(calls[&deadly].len(), DEATHS);
    stop_all(workers).await;
    cluster.erase().await;
}

/// Not on SQLite: a process that is frozen in a transaction keeps the file from all others.
pub(crate) async fn a_worker_paused_past_the_lease_of_its_claims_changes_nothing<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("cpau{}", &store[..2]), "claimed-transactional").await;
    let workers = cluster.claimers(3).await;
    for _ in 0..10 {
        cluster.schedule(100).await;
    }
    let (process, owner) = (workers[0].process(), workers[0].instance());
    cluster.wait("the worker has claims", async || cluster.claims_of(&owner).await > 0).await;
    workers[0].pause();
    let held = cluster.claims_of(&owner).await;
    assert!(held > 0, "it was frozen with claims");
    // What it was about to commit stays locked until it wakes.
    let open = TRANSACTIONS as i64;
    cluster.wait("others have its claims", async || cluster.claims_of(&owner).await <= open).await;
    cluster.feed(200, 0.5).await;
    workers[0].wake();
    cluster.feed(200, 1.0).await;
    cluster.wait_until_empty().await;
    let effects =
        format!("SELECT count(*), count(DISTINCT k * 1000000 + step) FROM {}effect", cluster.prefix);
    let scheduled = cluster.events.len() as i64;
    assert_eq!(T::numbers(&cluster.pool, effects).await, [[scheduled, scheduled]], "each effect once");
    println!("{held} claims were taken over, {} calls were repeated", cluster.assert_called(&process));
    stop_all(workers).await;
    cluster.erase().await;
}
