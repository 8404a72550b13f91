//! Behind a pooler that does not keep sessions, and with an address for signals that does not work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane_lock::LockClient;
use sqlx::{
    PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    relay::Relay,
    stage::{LONG, Stage},
    target::{OnPostgres, PATIENCE, url},
};

fn through(relay: &Relay, options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().port(relay.port()).ssl_mode(PgSslMode::Disable)
}

fn direct() -> PgConnectOptions {
    url("KEYLANE_TEST_POSTGRES_URL").parse().unwrap()
}

/// As a user has it behind a pooler of an old version: `extra_float_digits` is refused in the start-up packet, and
/// named statements are lost.
fn pooled(mode: &str) -> PgConnectOptions {
    let options: PgConnectOptions = url(&format!("KEYLANE_TEST_PGBOUNCER_{mode}_URL")).parse().unwrap();
    options.extra_float_digits(None).statement_cache_capacity(0)
}

/// Other clients of the same pooler, who understand no notification. They end when this is dropped.
fn strangers(options: &PgConnectOptions) -> (JoinSet<Result<(), sqlx::Error>>, Arc<AtomicBool>) {
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options.clone());
    let goes_on = Arc::new(AtomicBool::new(true));
    let mut strangers = JoinSet::new();
    for _ in 0..4 {
        let (pool, goes_on) = (pool.clone(), Arc::clone(&goes_on));
        strangers.spawn(async move {
            while goes_on.load(SeqCst) {
                let mut tx = pool.begin().await?;
                sqlx::raw_sql("SELECT pg_sleep(0.001)").execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Ok(())
        });
    }
    (strangers, goes_on)
}

/// Waits behind another client with a lease that is far away; how often it asked within a second. Once it has asked at
/// all, it gets the time for three questions, which a busy machine may need.
async fn polls(stage: &Stage<OnPostgres>, locks: &LockClient<Postgres>, asked: &AtomicUsize) -> usize {
    let holder = stage.locks.lock("one").await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("one").await.unwrap() }
    });
    stage.queued("one", 2).await;
    // Longer than a client tests its address and waits for its own first notification.
    sleep(Duration::from_secs(4)).await;
    let before = asked.load(SeqCst);
    sleep(Duration::from_secs(1)).await;
    let asked_since = || asked.load(SeqCst) - before;
    let three = async {
        while (1..3).contains(&asked_since()) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = timeout(PATIENCE, three).await;
    let polls = asked_since();
    holder.release().await.unwrap();
    let guard = timeout(Duration::from_secs(3), waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    polls
}

async fn long() -> Stage<OnPostgres> {
    Stage::with("READ COMMITTED", LONG).await.unwrap()
}

/// A pool whose acquisitions are counted.
fn counted(options: PgConnectOptions) -> (PgPool, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let pool = PgPoolOptions::new().max_connections(4).before_acquire(move |_, _| {
        counts.fetch_add(1, SeqCst);
        Box::pin(async { Ok(true) })
    });
    (pool.connect_lazy_with(options), asked)
}

/// A `LISTEN` would stay on a connection that the pooler lends to others.
async fn no_listen_goes_through(mode: &str) {
    let stage = long().await;
    let relay = Relay::to(pooled(mode).get_port()).await;
    let (pool, asked) = counted(through(&relay, &pooled(mode)));
    let locks = LockClient::builder(pool).table_prefix(stage.prefix.as_str()).lease(LONG).build().unwrap();
    let (mut strangers, goes_on) = strangers(&pooled(mode));
    let polls = polls(&stage, &locks, &asked).await;
    assert!(polls > 2, "{polls} questions in a second: it waits for signals");
    // Many at once: what one call prepares must not be run on a connection where another has prepared something.
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let locks = if task % 2 == 0 { locks.clone() } else { stage.locks.clone() };
        tasks.spawn(async move {
            for round in 0..10 {
                let guard = locks.lock(["one", "two"][round % 2]).await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    timeout(PATIENCE, tasks.join_all()).await.unwrap();
    assert!(relay.has_seen("pg_backend_pid") && relay.has_seen("expires_at"), "it sees what is sent");
    assert!(!relay.has_seen("LISTEN"), "a LISTEN went to the pooler");
    goes_on.store(false, SeqCst);
    while let Some(stranger) = strangers.join_next().await {
        stranger.unwrap().unwrap();
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_no_listen_goes_through_a_pooler_in_transaction_mode() {
    no_listen_goes_through("TRANSACTION").await;
}

/// All clients share one connection of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_no_listen_goes_through_a_pooler_with_one_connection() {
    no_listen_goes_through("SINGLE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_an_address_for_signals_serves_beside_a_pooled_one() {
    let stage = long().await;
    let (to_pooler, to_server) =
        (Relay::to(pooled("TRANSACTION").get_port()).await, Relay::to(direct().get_port()).await);
    let (pool, asked) = counted(through(&to_pooler, &pooled("TRANSACTION")));
    let signals = PgPool::connect_lazy_with(through(&to_server, &direct()));
    let locks =
        LockClient::builder(pool).table_prefix(stage.prefix.as_str()).lease(LONG).signal_pool(signals);
    let polls = polls(&stage, &locks.build().unwrap(), &asked).await;
    assert_eq!(polls, 0, "questions in a second");
    assert!(to_server.has_seen("LISTEN") && !to_pooler.has_seen("LISTEN"));
    stage.end().await;
}

/// In session mode a pooler keeps what was said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_pooler_in_session_mode_passes_signals_on() {
    let stage = long().await;
    let (pool, asked) = counted(pooled("SESSION"));
    let locks = LockClient::builder(pool).table_prefix(stage.prefix.as_str()).lease(LONG).build().unwrap();
    assert_eq!(polls(&stage, &locks, &asked).await, 0, "questions in a second");
    stage.end().await;
}

/// A notification stays in its database, and a pooler in statement mode keeps nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_an_address_for_signals_that_brings_none_is_noticed() {
    let stage = long().await;
    let relay = Relay::to(pooled("STATEMENT").get_port()).await;
    for useless in [direct().database("template1"), through(&relay, &pooled("STATEMENT"))] {
        let (pool, asked) = counted(direct());
        let locks = LockClient::builder(pool).table_prefix(stage.prefix.as_str()).lease(LONG);
        let locks = locks.signal_pool(PgPool::connect_lazy_with(useless)).build().unwrap();
        let polls = polls(&stage, &locks, &asked).await;
        assert!(polls > 2, "{polls} questions in a second: it waits for signals");
    }
    assert!(relay.has_seen("pg_backend_pid") && !relay.has_seen("LISTEN"));
    stage.end().await;
}
