//! A database that is not there yet, or fails meanwhile: a port that refuses connections until a forwarder to
//! the real server listens on it.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use keylane::{Observer, Outbox, Signal, database::Database, health::Degradation, telemetry::LogObserver};
use tokio::{
    io::copy_bidirectional,
    net::{TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::{
    health::{until_degraded, until_healthy},
    ledger::{Ledger, Placed, dealt, run_of},
    recorder::{bounded, eventually},
    stage::{Stage, until_empty},
    target::{MariaDbTarget, MySqlTarget, Pool, PostgresTarget, Target},
    user::User,
};

/// A store on a server whose address can be changed.
pub(crate) trait Remote: User {
    /// The port of the server of this pool.
    fn port(pool: &Pool<Self>) -> u16;
    /// A pool to the same server behind another port; it does not connect yet.
    fn behind(pool: &Pool<Self>, port: u16) -> Pool<Self>;
}

macro_rules! remote {
    ($($target:ty: $options:ty),*) => {$(
        impl Remote for $target {
            fn port(pool: &Pool<Self>) -> u16 {
                pool.connect_options().get_port()
            }

            fn behind(pool: &Pool<Self>, port: u16) -> Pool<Self> {
                let options = (*pool.connect_options()).clone().port(port);
                <$options>::new().max_connections(3).connect_lazy_with(options)
            }
        }
    )*};
}

remote!(
    PostgresTarget: sqlx::postgres::PgPoolOptions,
    MariaDbTarget: sqlx::mysql::MySqlPoolOptions,
    MySqlTarget: sqlx::mysql::MySqlPoolOptions
);

/// A way to a server that can be cut. The port is reserved from the beginning, but refuses connections until
/// `open`.
struct Way {
    port: u16,
    server: SocketAddr,
    open: Option<JoinHandle<()>>,
}

impl Way {
    fn to(port: u16) -> (Self, TcpSocket) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let own = socket.local_addr().unwrap().port();
        (Self { port: own, server: ([127, 0, 0, 1], port).into(), open: None }, socket)
    }

    fn open(&mut self, socket: TcpSocket) {
        let listener = socket.listen(64).unwrap();
        let server = self.server;
        self.open = Some(tokio::spawn(async move {
            // Dropped with this task, which cuts every connection.
            let mut ways = JoinSet::new();
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                ways.spawn(async move {
                    let mut to = TcpStream::connect(server).await.unwrap();
                    drop(copy_bidirectional(&mut from, &mut to).await);
                });
            }
        }));
    }

    /// Cuts every connection and refuses new ones until it is opened again.
    async fn cut(&mut self) -> TcpSocket {
        let open = self.open.take().unwrap();
        open.abort();
        drop(open.await);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], self.port).into()).unwrap();
        socket
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.abort();
        }
    }
}

async fn behind<T: Remote>(stage: &Stage<T>, way: &Way, ledger: &Ledger) -> Outbox<T::Db> {
    let pool: <<T as Target>::Db as Database>::Pool = T::behind(&stage.pool, way.port);
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap()
}

pub(crate) async fn start_waits_until_the_database_is_there<T: Remote>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (mut way, socket) = Way::to(T::port(&stage.pool));
    let outbox = behind(stage, &way, &ledger).await;
    let starting = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.start().await }
    });
    let failed = |signal: &Signal| matches!(signal, Signal::StoreFailed { .. });
    stage.signals.at_least(3, "three tries", failed).await;
    assert!(!starting.is_finished(), "it waits");
    let errors = stage.signals.picked(|signal| match signal {
        Signal::StoreFailed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert!(errors[0].to_lowercase().contains("refused"), "{errors:?}");
    way.open(socket);
    let running = bounded("the start", starting).await.unwrap().unwrap();
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 3);
}

/// The outage is shorter than the stale timeout, so no instance is evicted: lost replies are resolved.
pub(crate) async fn an_outage_in_the_middle_loses_and_repeats_nothing<T: Remote>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (mut way, socket) = Way::to(T::port(&stage.pool));
    way.open(socket);
    let outbox = behind(stage, &way, &ledger).await;
    let running = outbox.start().await.unwrap();
    let events: Vec<Placed> = dealt(20, 60);
    let parts: Vec<&[Placed]> = events.chunks(400).collect();
    for (round, part) in parts.iter().enumerate() {
        stage.schedule(&outbox, part).await;
        ledger.until_done(round * 400 + 20).await;
        let socket = way.cut().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        way.open(socket);
    }
    ledger.until_done(1200).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 1200);
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. });
    assert_eq!(stage.signals.count(evicted), 0);
}

pub(crate) async fn an_outage_is_told_by_the_health_of_the_workers<T: Remote>(stage: &Stage<T>) {
    let (mut way, socket) = Way::to(T::port(&stage.pool));
    way.open(socket);
    let outbox = behind(stage, &way, &Ledger::default()).await;
    let running = outbox.start().await.unwrap();
    until_healthy(&running).await;
    // Who owns nothing fetches nothing.
    let granted = |signal: &Signal| matches!(signal, Signal::PartitionsGranted { .. });
    stage.signals.at_least(1, "partitions", granted).await;
    let socket = way.cut().await;
    until_degraded(&running, |reason| matches!(reason, Degradation::FetchesFail { .. })).await;
    assert!(running.health().live);
    way.open(socket);
    until_healthy(&running).await;
    running.shutdown().await;
}

/// The signals are given again to the observer that writes the log, and its lines are read.
pub(crate) async fn an_outage_is_a_line_at_each_end<T: Remote>(stage: &Stage<T>) {
    let (mut way, socket) = Way::to(T::port(&stage.pool));
    way.open(socket);
    let outbox = behind(stage, &way, &Ledger::default()).await;
    let running = outbox.start().await.unwrap();
    let answered = |signal: &Signal| matches!(signal, Signal::BeatAnswered);
    stage.signals.at_least(1, "a beat", answered).await;
    let is_failure = |signal: &Signal| matches!(signal, Signal::StoreFailed { .. });
    let socket = way.cut().await;
    stage.signals.at_least(4, "failures", is_failure).await;
    way.open(socket);
    eventually("two beats after the last failure", async || {
        let signals = stage.signals.all();
        let last = signals.iter().rposition(is_failure)?;
        (signals[last..].iter().filter(|signal| answered(signal)).count() >= 2).then_some(())
    })
    .await;
    running.shutdown().await;
    let signals = stage.signals.all();
    // With one subscriber in the process, tracing would ask another test's thread whether anybody wants these lines.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let lines = Lines::default();
    let log = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(move || log.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        let observer = LogObserver::default();
        signals.iter().for_each(|signal| observer.on(signal));
    });
    let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let about: Vec<&str> = lines.lines().filter(|line| line.contains("database calls")).collect();
    assert_eq!(about.len(), 2, "{about:#?}");
    assert!(about[0].contains("database calls fail;") && about[1].contains("succeed again"), "{about:#?}");
}

/// The written lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
