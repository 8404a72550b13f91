//! What wakes waiters, and what happens when that fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane_lock::LockClient;
use sqlx::{
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    relay::Relay,
    stage::{LEASE, LONG, Stage},
    target::{OnMariaDb, OnMySql, OnPostgres, PATIENCE, Target, on_each, url},
};

on_each! {
    a_waiter_of_the_same_client_is_woken,
}

/// Waits behind another client with a lease that is long, by a pool that counts; how often it asked the database,
/// and how long the hand-over took.
async fn waited<T: Target>(
    stage: &Stage<T>,
    pool: impl FnOnce(Arc<AtomicUsize>) -> sqlx::Pool<T::Db>,
) -> (usize, Duration) {
    let asked = Arc::new(AtomicUsize::new(0));
    let pool = pool(Arc::clone(&asked));
    let builder = LockClient::builder(pool).table_prefix(stage.prefix.as_str());
    let locks = builder.lease(LONG).build().unwrap();
    // The first wait opens what it needs for signals.
    let mut counted = 0;
    let mut took = Duration::ZERO;
    for _ in 0..2 {
        let holder = stage.locks.lock("one").await.unwrap();
        let waiter = tokio::spawn({
            let locks = locks.clone();
            async move {
                let guard = locks.lock("one").await.unwrap();
                (guard, Instant::now())
            }
        });
        stage.queued("one", 2).await;
        sleep(Duration::from_millis(500)).await;
        let before = asked.load(SeqCst);
        sleep(LEASE).await;
        counted = asked.load(SeqCst) - before;
        let released = Instant::now();
        holder.release().await.unwrap();
        let (guard, got) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
        took = got - released;
        guard.release().await.unwrap();
    }
    (counted, took)
}

macro_rules! counting {
    ($options:ty, $url:expr, $asked:expr) => {{
        let asked: Arc<AtomicUsize> = $asked;
        let options = <$options>::new().max_connections(4).before_acquire(move |_, _| {
            asked.fetch_add(1, SeqCst);
            Box::pin(async { Ok(true) })
        });
        options.connect_lazy_with($url)
    }};
}

async fn a_waiter_is_woken_and_does_not_poll<T: Target>(
    pool: impl FnOnce(Arc<AtomicUsize>) -> sqlx::Pool<T::Db>,
) {
    // At the end of the lease ahead a waiter reads the queue in any case: that is far away.
    let Some(stage) = Stage::<T>::with("READ COMMITTED", LONG).await else { return };
    let (asked, took) = waited(&stage, pool).await;
    assert_eq!(asked, 0, "questions within {LEASE:?}");
    assert!(took < LONG / 4, "{took:?}");
    stage.end().await;
}

#[tokio::test]
async fn postgres_a_waiter_is_woken_and_does_not_poll() {
    let url = url("KEYLANE_TEST_POSTGRES_URL");
    a_waiter_is_woken_and_does_not_poll::<OnPostgres>(|asked| {
        counting!(PgPoolOptions, url.parse().unwrap(), asked)
    })
    .await;
}

#[tokio::test]
async fn mariadb_a_waiter_is_woken_and_does_not_poll() {
    let url = url("KEYLANE_TEST_MARIADB_URL");
    a_waiter_is_woken_and_does_not_poll::<OnMariaDb>(|asked| {
        counting!(MySqlPoolOptions, url.parse().unwrap(), asked)
    })
    .await;
}

#[tokio::test]
async fn mysql_a_waiter_is_woken_and_does_not_poll() {
    if std::env::var("KEYLANE_TEST_MYSQL_SKIP").is_ok() {
        return eprintln!("MySQL is skipped");
    }
    let url = url("KEYLANE_TEST_MYSQL_URL");
    a_waiter_is_woken_and_does_not_poll::<OnMySql>(|asked| {
        counting!(MySqlPoolOptions, url.parse().unwrap(), asked)
    })
    .await;
}

/// Nothing tells a waiter but memory: the lease ahead of it ends far away, and no other client is there.
async fn a_waiter_of_the_same_client_is_woken<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", LONG).await else { return };
    let holder = stage.locks.lock("one").await.unwrap();
    let waiter = tokio::spawn({
        let locks = stage.locks.clone();
        async move { locks.lock("one").await.unwrap() }
    });
    stage.queued("one", 2).await;
    sleep(Duration::from_millis(300)).await;
    holder.release().await.unwrap();
    let guard = timeout(Duration::from_secs(3), waiter).await.expect("it waits for a signal").unwrap();
    guard.release().await.unwrap();
    stage.end().await;
}

/// While no listener is connected, waiters poll. When one is connected again, they stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_listener_that_is_lost_is_replaced() {
    let stage = Stage::<OnPostgres>::with("READ COMMITTED", LONG).await.unwrap();
    let direct: PgConnectOptions = url("KEYLANE_TEST_POSTGRES_URL").parse().unwrap();
    let relay = Relay::to(direct.get_port()).await;
    let signals = direct.clone().port(relay.port()).ssl_mode(PgSslMode::Disable);
    let asked = Arc::new(AtomicUsize::new(0));
    let pool = counting!(PgPoolOptions, direct, Arc::clone(&asked));
    let builder = LockClient::builder(pool).table_prefix(stage.prefix.as_str()).lease(LONG);
    let locks = builder.signal_pool(PgPool::connect_lazy_with(signals)).build().unwrap();
    let polls = async || {
        let before = asked.load(SeqCst);
        sleep(Duration::from_millis(500)).await;
        asked.load(SeqCst) - before
    };
    for is_lost in [true, false] {
        let holder = stage.locks.lock("one").await.unwrap();
        let waiter = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("one").await.unwrap() }
        });
        stage.queued("one", 2).await;
        let quiet = async { while polls().await > 0 {} };
        timeout(PATIENCE, quiet).await.expect("it listens");
        if is_lost {
            relay.leave();
            assert!(polls().await > 1, "nobody listens, and it does not poll");
        }
        holder.release().await.unwrap();
        let guard = timeout(Duration::from_secs(3), waiter).await.expect("it waits for a signal").unwrap();
        guard.release().await.unwrap();
        relay.come_back();
    }
    stage.end().await;
}

/// The session that carries the signals is killed while somebody waits.
async fn a_waiter_whose_signals_are_cut_off_goes_on<T: Target>(session: &str, kill: &str) {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", LONG).await else { return };
    let other = stage.other().await;
    let holder = stage.locks.lock("one").await.unwrap();
    let waiter = tokio::spawn(async move { other.locks.lock("one").await.unwrap() });
    stage.queued("one", 2).await;
    let open = async {
        loop {
            match stage.number(session).await {
                0 => sleep(Duration::from_millis(10)).await,
                session => break session,
            }
        }
    };
    let session = timeout(PATIENCE, open).await.expect("somebody listens");
    sleep(Duration::from_millis(300)).await;
    stage.execute(&kill.replace('@', &session.to_string())).await;
    sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    holder.release().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    guard.release().await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn postgres_a_waiter_whose_signals_are_cut_off_goes_on() {
    let listener = "SELECT coalesce(max(pid), 0)::int8 FROM pg_stat_activity WHERE application_name = '{}' AND query LIKE 'LISTEN%'";
    a_waiter_whose_signals_are_cut_off_goes_on::<OnPostgres>(listener, "SELECT pg_terminate_backend(@)")
        .await;
}

/// The one that holds the name of the first ticket.
const NAMES: &str = "SELECT CAST(COALESCE(IS_USED_LOCK(CONCAT('keylane_lock_', ticket)), 0) AS SIGNED) FROM {}ticket ORDER BY token LIMIT 1";

#[tokio::test]
async fn mariadb_a_waiter_whose_signals_are_cut_off_goes_on() {
    a_waiter_whose_signals_are_cut_off_goes_on::<OnMariaDb>(NAMES, "KILL @").await;
}

#[tokio::test]
async fn mysql_a_waiter_whose_signals_are_cut_off_goes_on() {
    a_waiter_whose_signals_are_cut_off_goes_on::<OnMySql>(NAMES, "KILL @").await;
}

/// The session that held the names is lost; the next renewal takes them again.
async fn names_are_held_again_when_their_session_was_lost<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let holder = stage.locks.lock("one").await.unwrap();
    let lost = stage.number(NAMES).await;
    stage.execute(&format!("KILL {lost}")).await;
    let held = async || {
        let sql = format!("SELECT COALESCE(({NAMES}), 0)");
        stage.number(&sql).await
    };
    let again = async { while [0, lost].contains(&held().await) {} };
    timeout(PATIENCE, again).await.expect("the name is held again");
    assert!(holder.is_held());
    holder.release().await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn mariadb_names_are_held_again_when_their_session_was_lost() {
    names_are_held_again_when_their_session_was_lost::<OnMariaDb>().await;
}

#[tokio::test]
async fn mysql_names_are_held_again_when_their_session_was_lost() {
    names_are_held_again_when_their_session_was_lost::<OnMySql>().await;
}
