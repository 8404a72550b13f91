//! Commits of other processes, found by notifications of the database or by fetches that follow their
//! traffic. Polls are further apart than a case may take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use keylane::{Config, Mode, Outbox, Signal, health::Degradation};
use sqlx::{PgPool, Row, postgres::PgSslMode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::{
    health::until_degraded,
    ledger::{Ledger, dealt, placed},
    recorder::eventually,
    stage::{Stage, until_empty},
    target::PostgresTarget,
    user::User,
};

type PgStage = Stage<PostgresTarget>;

fn config(stage: &PgStage) -> Config {
    let mut config = stage.config.clone();
    config.delivery.poll_interval = Duration::from_secs(300);
    // A fetch follows each view of the cluster.
    config.cluster.rebalance_interval = Duration::from_secs(100);
    config.cluster.stale_instance_timeout = Duration::from_secs(200);
    assert!(config.database.notifications, "the default");
    config
}

/// A process that only schedules: its commits wake no worker in the same process.
async fn producer(stage: &PgStage) -> Outbox<sqlx::Postgres> {
    stage.builder().await.config(config(stage)).build().await.unwrap()
}

/// Schedules three events of a key, each after the call of the one before.
async fn three_in_turn(producer: &Outbox<sqlx::Postgres>, ledger: &Ledger) {
    for number in 1..=3 {
        let event = placed("order-1", number);
        producer.transaction(async |tx| producer.schedule(tx, &event).await.map(drop)).await.unwrap();
        ledger.until_done(number as usize).await;
    }
}

/// The time from each commit of another process to the end of its call. Before each event there is a pause.
async fn waits<T: User>(
    stage: &Stage<T>,
    ledger: &Ledger,
    config: Config,
    events: u32,
    pause: Duration,
) -> Vec<Duration> {
    let builder = stage.builder().await.config(config.clone()).handler(ledger.keeper("bookkeeper"));
    let worker = builder.build().await.unwrap();
    let running = worker.start().await.unwrap();
    let producer = stage.builder().await.config(config).build().await.unwrap();
    let mut waited = Vec::new();
    for number in 1..=events {
        tokio::time::sleep(pause).await;
        let event = placed("order-1", number);
        producer.transaction(async |tx| producer.schedule(tx, &event).await.map(drop)).await.unwrap();
        let committed = Instant::now();
        ledger.until_done(number as usize).await;
        waited.push(committed.elapsed());
    }
    until_empty(&worker).await;
    running.shutdown().await;
    waited
}

/// The first record waits for a poll, the later ones for a small part of the interval.
pub(crate) async fn traffic_of_another_process_is_found_early<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.database.notifications = false;
    config.delivery.poll_interval = Duration::from_secs(2);
    // A fetch follows each view of the cluster.
    config.cluster.rebalance_interval = Duration::from_secs(7);
    let interval = config.delivery.poll_interval;
    let mut waited = waits(stage, &ledger, config, 10, Duration::from_millis(50)).await;
    waited.remove(0);
    waited.sort();
    assert!(waited[waited.len() / 2] < interval / 4, "{waited:?}");
    assert_eq!(ledger.assert_in_order(), 10);
}

/// The connections that listen on the channel of these tables.
async fn listeners(stage: &PgStage) -> Vec<i32> {
    let name = format!("{}.{}", stage.tables.schema().unwrap_or_default(), stage.tables.prefix());
    let listen = format!("LISTEN \"keylane_{:016x}\"", xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
    let sql = "SELECT pid FROM pg_stat_activity WHERE starts_with(query, $1)";
    let rows = sqlx::query(sql).bind(listen).fetch_all(&stage.pool).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_commit_of_another_process_is_told_whatever_becomes_of_the_connection() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let worker = stage.builder().await.config(config(&stage)).handler(ledger.keeper("bookkeeper"));
    let worker = worker.build().await.unwrap();
    let running = worker.start().await.unwrap();
    let producer = producer(&stage).await;
    for (round, events) in
        [dealt(10, 1), vec![placed("order-1", 1)], vec![placed("order-1", 2)]].iter().enumerate()
    {
        producer.transaction(async |tx| producer.schedule_all(tx, events).await.map(drop)).await.unwrap();
        ledger.until_done([10, 11, 12][round]).await;
    }
    // The listener's connection is cut: it finds the commits in between when it listens again.
    for number in 3..=5 {
        let pid = eventually("a listener", async || listeners(&stage).await.pop()).await;
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&stage.pool).await.unwrap();
        let event = placed("order-1", number);
        producer.transaction(async |tx| producer.schedule(tx, &event).await.map(drop)).await.unwrap();
        ledger.until_done(number as usize + 10).await;
    }
    until_empty(&worker).await;
    assert_eq!(ledger.done_of("order-1"), [1, 2, 3, 4, 5]);
    running.shutdown().await;
    stage.erase().await;
}

/// Polls are minutes apart, so that only the notification can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_in_claimed_mode_a_commit_of_another_process_is_handed_over_at_once() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let mut config = config(&stage);
    config.mode = Mode::Claimed;
    config.delivery.claim_lease = 2 * config.delivery.poll_interval;
    let mut waited = waits(&stage, &ledger, config, 20, Duration::from_millis(20)).await;
    waited.sort_unstable();
    assert!(waited[waited.len() / 2] < Duration::from_secs(5), "{waited:?}");
    stage.erase().await;
}

/// Each instance owns half of the keys, and no instance polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_instances_tell_one_another_of_their_commits() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let start = async || {
        let worker = stage.builder().await.config(config(&stage)).handler(ledger.keeper("bookkeeper"));
        let worker = worker.build().await.unwrap();
        let running = worker.start().await.unwrap();
        (worker, running)
    };
    let (first, running) = start().await;
    let scheduled = async |number| {
        let events: Vec<_> = (1..=40).map(|key| placed(&format!("key-{key}"), number)).collect();
        first.transaction(async |tx| first.schedule_all(tx, &events).await.map(drop)).await.unwrap();
        ledger.until_done(40 * number as usize).await;
    };
    // An instance alone notifies no other, and does not need to.
    scheduled(1).await;
    let (_second, other) = start().await;
    let half = |signal: &Signal| matches!(signal, Signal::PartitionsGranted { partitions } if partitions.len() == 128);
    stage.signals.at_least(1, "half of the partitions", half).await;
    scheduled(2).await;
    scheduled(3).await;
    until_empty(&first).await;
    other.shutdown().await;
    scheduled(4).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 160);
    stage.erase().await;
}

/// Polls are minutes apart, and the function that notifies is forbidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_notifications_need_no_right() {
    let stage = PgStage::bare().await.unwrap();
    let name = stage.tables.schema().unwrap().to_owned();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&stage.pool).await.unwrap();
    run(format!("CREATE ROLE {name} LOGIN")).await;
    run(format!("CREATE DATABASE {name} OWNER {name}")).await;
    let options = (*stage.pool.connect_options()).clone().database(&name);
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC";
    let owner = sqlx::PgPool::connect_with(options.clone()).await.unwrap();
    sqlx::raw_sql(revoke).execute(&owner).await.unwrap();
    owner.close().await;
    let pool = sqlx::PgPool::connect_with(options.username(&name)).await.unwrap();
    let ledger = Ledger::default();
    let builder = || Outbox::builder(pool.clone()).config(config(&stage)).observer(stage.signals.clone());
    let worker = builder().handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    worker.migrate().await.unwrap();
    let running = worker.start().await.unwrap();
    let producer = builder().build().await.unwrap();
    three_in_turn(&producer, &ledger).await;
    let absent = |signal: &Signal| matches!(signal, Signal::NotificationsAbsent { .. });
    running.shutdown().await;
    assert_eq!(stage.signals.count(absent), 0);
    pool.close().await;
    drop((worker, producer));
    run(format!("DROP DATABASE {name} WITH (FORCE)")).await;
    run(format!("DROP ROLE {name}")).await;
}

/// What a relay does with a notification.
#[derive(Clone, Copy, PartialEq)]
enum Notified {
    Lost,
    /// The first one ends its connection, the later ones pass.
    Cuts,
}

/// A relay to the server. Returns its port.
async fn relay(server: u16, notified: Notified) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let has_cut = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, server, notified, Arc::clone(&has_cut)));
        }
    });
    port
}

/// Passes on what both sides send, until one of them ends.
async fn pass_on(
    client: TcpStream,
    server: u16,
    notified: Notified,
    has_cut: Arc<AtomicBool>,
) -> std::io::Result<()> {
    let (mut client_reads, mut client_writes) = client.into_split();
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    let (mut server_reads, mut server_writes) = server.into_split();
    let answers = async move {
        loop {
            let kind = server_reads.read_u8().await?;
            // The length counts itself.
            let length = server_reads.read_u32().await?;
            let mut body = vec![0; length as usize - 4];
            server_reads.read_exact(&mut body).await?;
            let is_notification = kind == b'A';
            match notified {
                Notified::Lost if is_notification => continue,
                Notified::Cuts if is_notification && !has_cut.swap(true, Ordering::SeqCst) => return Ok(()),
                _ => client_writes.write_all(&[&[kind], &length.to_be_bytes()[..], &body].concat()).await?,
            }
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = tokio::io::copy(&mut client_reads, &mut server_writes) => ended.map(drop),
    }
}

/// A pool behind a relay.
async fn relayed(stage: &PgStage, notified: Notified) -> PgPool {
    let options = (*stage.pool.connect_options()).clone();
    let port = relay(options.get_port(), notified).await;
    PgPool::connect_with(options.port(port).ssl_mode(PgSslMode::Disable)).await.unwrap()
}

/// Nothing that is notified arrives: polls find the commits, the health shows it, and it is reported once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_where_nothing_arrives_polls_go_on_alone() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let pool = relayed(&stage, Notified::Lost).await;
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    let worker = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = worker.start().await.unwrap();
    let absent = |signal: &Signal| match signal {
        Signal::NotificationsAbsent { error } => Some(error.clone()),
        _ => None,
    };
    let error = stage.signals.first("the absence", absent).await;
    assert!(error.contains("does not arrive here"), "{error}");
    until_degraded(&running, |reason| matches!(reason, Degradation::NotificationsAbsent)).await;
    let producer = stage.builder().await.build().await.unwrap();
    three_in_turn(&producer, &ledger).await;
    let failed = |signal: &Signal| matches!(signal, Signal::StoreFailed { .. });
    running.shutdown().await;
    assert_eq!((stage.signals.picked(absent).len(), stage.signals.count(failed)), (1, 0));
    stage.erase().await;
}

/// The first notification is the one that a listener sends to itself to test its connection. A connection that is lost
/// then is tested again soon, and is no sign of a pooler. Polls are minutes apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_connection_lost_during_its_test_is_tested_again() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let pool = relayed(&stage, Notified::Cuts).await;
    let builder = Outbox::builder(pool).config(config(&stage)).observer(stage.signals.clone());
    let worker = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = worker.start().await.unwrap();
    let is_lost = |signal: &Signal| matches!(signal, Signal::StoreFailed { call: "listen", .. });
    stage.signals.at_least(1, "the loss", is_lost).await;
    let producer = producer(&stage).await;
    three_in_turn(&producer, &ledger).await;
    let absent = |signal: &Signal| matches!(signal, Signal::NotificationsAbsent { .. });
    running.shutdown().await;
    assert_eq!(stage.signals.count(absent), 0);
    stage.erase().await;
}
