//! A process that is frozen in the middle of a transaction of the library.

use tokio::time::{Duration, Instant, sleep};

use crate::{
    cluster::{Cluster, PATIENCE},
    database::{MariaDb, MySql, Postgres, Target},
    stop_all,
};

/// A database on which a trigger makes the write of outcomes slow.
pub(crate) trait Slow: Target {
    /// Makes each row that is deleted take a moment, and ends that.
    const TRIGGER: &[&str];
    const END: &str;
    /// Counts the sessions that are in this moment.
    const SLEEPING: &str;
}

impl Slow for Postgres {
    const TRIGGER: &[&str] = &[
        "CREATE FUNCTION {p}slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_sleep(0.2);
            RETURN OLD; END $$",
        "CREATE TRIGGER slow BEFORE DELETE ON {p}record FOR EACH ROW EXECUTE FUNCTION {p}slow()",
    ];
    const END: &str = "DROP TRIGGER slow ON {p}record";
    const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
}

const MYSQL_TRIGGER: &[&str] =
    &["CREATE TRIGGER {p}slow BEFORE DELETE ON {p}record FOR EACH ROW DO SLEEP(0.2)"];
const MYSQL_END: &str = "DROP TRIGGER {p}slow";
const MYSQL_SLEEPING: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'";

impl Slow for MariaDb {
    const TRIGGER: &[&str] = MYSQL_TRIGGER;
    const END: &str = MYSQL_END;
    const SLEEPING: &str = MYSQL_SLEEPING;
}

impl Slow for MySql {
    const TRIGGER: &[&str] = MYSQL_TRIGGER;
    const END: &str = MYSQL_END;
    const SLEEPING: &str = MYSQL_SLEEPING;
}

/// The frozen process has moved its fence row and has not committed: no instance can evict it until the server ends its
/// transaction.
pub(crate) async fn a_worker_frozen_in_its_transaction_holds_nobody_up<T: Slow>(store: &str) {
    let mut cluster = Cluster::<T>::new(&format!("froz{}", &store[..2]), "plain").await;
    let mut workers = cluster.workers(1).await;
    cluster.feed(200, 1.0).await;
    cluster.wait_until_empty().await;
    for statement in T::TRIGGER {
        T::run(&cluster.pool, statement.replace("{p}", &cluster.prefix)).await;
    }
    cluster.schedule(8).await;
    let began = Instant::now();
    while T::numbers(&cluster.pool, T::SLEEPING.to_owned()).await[0][0] == 0 {
        assert!(began.elapsed() < PATIENCE, "no outcome is written");
        sleep(Duration::from_millis(5)).await;
    }
    let instance = workers[0].instance();
    cluster.fault(true, "pause", Some(&instance));
    workers[0].pause();
    let began = Instant::now();
    workers.push(cluster.worker().await);
    println!("joined after {:?}", began.elapsed());
    let took = cluster.watcher().wait_until_taken_over(&instance).await;
    println!("taken over after {took:?}");
    T::run(&cluster.pool, T::END.replace("{p}", &cluster.prefix)).await;
    workers[0].wake();
    cluster.fault(false, "pause", Some(&instance));
    cluster.verdict_of(&[], &["eviction", "takeover"]).await;
    stop_all(workers).await;
    cluster.erase().await;
}
