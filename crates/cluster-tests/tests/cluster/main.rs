//! Real processes on real databases join, leave, are killed, frozen and replaced. The checker judges each
//! history. It knows nothing of the library.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod claimed;
mod cluster;
mod crossing;
mod database;
mod deadly;
mod failover;
mod frozen;
mod restart;
mod server;
mod upgrade;
mod verdict;
mod worker;

use crate::{
    claimed::{
        a_claimed_record_that_kills_its_process_is_set_aside,
        a_worker_paused_past_the_lease_of_its_claims_changes_nothing,
        claims_of_a_killed_worker_come_again_after_the_lease,
    },
    cluster::Cluster,
    crossing::crossing_writers_lose_and_invert_nothing,
    database::{MariaDb, MySql, Postgres, Sqlite, Target},
    deadly::a_record_that_kills_its_process_is_set_aside,
    frozen::a_worker_frozen_in_its_transaction_holds_nobody_up,
    upgrade::an_upgrade_and_its_rollback_lose_and_repeat_nothing,
    verdict::TAKEOVER,
    worker::Worker,
};

/// Writes a test for each database.
macro_rules! cases {
    ($($case:ident: $($name:ident $target:ty),+;)+) => {
        $(mod $case {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(reason) = <$target as super::Target>::skipped() {
                    return eprintln!("not run: {reason}");
                }
                super::$case::<$target>(stringify!($name)).await;
            })+
        })+
    };
}

cases! {
    a_killed_worker_is_taken_over_in_time: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_rolling_restart_makes_no_duplicate: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_fourth_worker_takes_exactly_sixty_four: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_worker_paused_past_its_lease_changes_nothing: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_worker_frozen_in_its_transaction_holds_nobody_up: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql;
    a_record_that_kills_its_process_is_set_aside: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    an_upgrade_and_its_rollback_lose_and_repeat_nothing: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    crossing_writers_lose_and_invert_nothing: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    claims_of_a_killed_worker_come_again_after_the_lease: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_claimed_record_that_kills_its_process_is_set_aside: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
    a_worker_paused_past_the_lease_of_its_claims_changes_nothing: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql;
    effects_in_the_transaction_happen_exactly_once: postgres super::Postgres, mariadb super::MariaDb, mysql super::MySql, sqlite super::Sqlite;
}

async fn a_killed_worker_is_taken_over_in_time<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("kill{}", &store[..2]), "plain").await;
    let mut workers = cluster.workers(3).await;
    cluster.feed(200, 3.0).await;
    let killed = workers.remove(0);
    let instance = killed.instance();
    cluster.kill(killed).await;
    // The feed goes on while the others take over.
    let watcher = cluster.watcher();
    let (took, ()) = tokio::join!(watcher.wait_until_taken_over(&instance), cluster.feed(200, 5.0));
    println!("takeover after {took:?}, bound {TAKEOVER:?}");
    assert!(took <= TAKEOVER, "takeover took {took:?}, the bound is {TAKEOVER:?}");
    cluster.verdict_of(&["crash"], &["eviction", "takeover"]).await;
    stop_all(workers).await;
    cluster.erase().await;
}

async fn a_rolling_restart_makes_no_duplicate<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("roll{}", &store[..2]), "steady").await;
    let mut workers = cluster.workers(3).await;
    for _ in 0..3 {
        cluster.feed(200, 0.5).await;
        let old = workers.remove(0);
        workers.push(cluster.worker().await);
        let (graceful, ()) = tokio::join!(old.stop(), cluster.feed(200, 1.0));
        assert!(graceful);
    }
    cluster.verdict_of(&[], &["takeover"]).await;
    stop_all(workers).await;
    cluster.erase().await;
}

async fn a_fourth_worker_takes_exactly_sixty_four<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("four{}", &store[..2]), "steady").await;
    let mut workers = cluster.workers(3).await;
    let before = cluster.generations().await;
    workers.push(cluster.worker().await);
    cluster.feed(200, 1.0).await;
    cluster.wait_until_balanced(&workers.iter().collect::<Vec<_>>()).await;
    assert_eq!(cluster.generations().await - before, 64);
    cluster.verdict_of(&[], &["takeover"]).await;
    stop_all(workers).await;
    cluster.erase().await;
}

async fn a_worker_paused_past_its_lease_changes_nothing<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("stop{}", &store[..2]), "plain").await;
    let workers = cluster.workers(3).await;
    cluster.feed(200, 1.0).await;
    let instance = workers[0].instance();
    cluster.pause(&workers[0], &instance).await;
    cluster.watcher().wait_until_taken_over(&instance).await;
    cluster.feed(200, 1.0).await;
    cluster.wake(&workers[0], &instance);
    cluster.feed(200, 2.0).await;
    cluster.verdict_of(&[], &["eviction", "takeover"]).await;
    stop_all(workers).await;
    cluster.erase().await;
}

async fn effects_in_the_transaction_happen_exactly_once<T: Target>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("once{}", &store[..2]), "transactional").await;
    let mut workers = cluster.workers(3).await;
    for _ in 0..3 {
        cluster.feed(200, 1.0).await;
        cluster.kill(workers.remove(0)).await;
        workers.push(cluster.worker().await);
    }
    let report = cluster.verdict_of(&["crash"], &["eviction", "takeover"]).await;
    assert!(report.judged.contains_key(&keylane_checker::Invariant::Effects), "{report:?}");
    stop_all(workers).await;
    cluster.erase().await;
}

async fn stop_all(workers: Vec<Worker>) {
    for worker in workers {
        assert!(worker.stop().await, "shutdown was not graceful");
    }
}
