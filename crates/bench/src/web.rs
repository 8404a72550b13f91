//! `bench web`: requests over HTTP to a handler behind guards, against the same handler alone.

use std::{
    any::Any,
    fmt,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::{Json, Router, routing::post};
use bytes::Bytes;
use clap::Args;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use keylane::sqlx::Postgres;
use keylane_web::{
    EnvelopeLayer, IdempotencyLayer, IdempotencyStore, Limit, RateLimitLayer, Redis, ResultEnvelope,
    SqlStore, TraceIdLayer,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tower::ServiceBuilder;

use super::{
    Engine, Result,
    meter::{Figure, Meter},
    options::Show,
    report::Report,
    stage::Stage,
    turns::in_turn,
};

/// More requests than any run has, so that the bucket refuses none.
const UNREACHED: Limit = Limit::per_second(1_000_000);

/// Options of `bench web`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Requests of each subject.
    #[arg(long, default_value = "20000")]
    requests: NonZeroUsize,
    /// Connections at once, each with one request at a time.
    #[arg(long, default_value = "16")]
    connections: NonZeroUsize,
    /// The address of a Redis.
    #[arg(long, default_value = "redis://127.0.0.1/")]
    redis: String,
    #[command(flatten)]
    pub(super) show: Show,
}

/// The guards before the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// None.
    Plain,
    /// The trace id and the form of errors alone.
    Trace,
    /// These and a bucket in memory.
    LocalLimit,
    /// These and a bucket in Redis.
    RedisLimit,
    /// All guards on Redis, each request with a new key.
    RedisKeys,
    /// The same, and all requests are repeats of one.
    RedisRepeats,
    /// All guards, each request with a new key in the database.
    DatabaseKeys,
}

/// Measures each subject in turn, as many times as `--runs` says.
///
/// # Errors
/// On another database than PostgreSQL, or if a request was not answered as it should be.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let stage: &dyn Any = stage;
    let stage = stage.downcast_ref::<Stage<Postgres>>().ok_or("bench web needs PostgreSQL")?;
    let mut report = Report::new("web", "PostgreSQL and Redis");
    let meter = Meter::<Postgres>::open(&stage.pool).await?;
    let guarded = [
        Subject::Trace,
        Subject::LocalLimit,
        Subject::RedisLimit,
        Subject::RedisKeys,
        Subject::RedisRepeats,
        Subject::DatabaseKeys,
    ];
    let subjects = [Subject::Plain].into_iter().chain(guarded).collect();
    let pairs = guarded.map(|subject| (subject, Subject::Plain));
    let measure = |subject| measure(stage, options, &meter, subject).boxed();
    in_turn(stage, &options.show, &mut report, subjects, &pairs, measure).await?;
    let Options { requests, connections, .. } = options;
    report.note(format!(
        "{requests} requests of each, {connections} connections; client and service in one process"
    ));
    Ok(report)
}

/// The rate, the processor time of a request, and the time that its client waits.
async fn measure(
    stage: &Stage<Postgres>,
    options: &Options,
    meter: &Meter<Postgres>,
    subject: Subject,
) -> Result<[Figure; 3]> {
    stage.set_up().await?;
    let calls = Arc::new(AtomicUsize::new(0));
    let app = app(stage, options, subject, Arc::clone(&calls)).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, app).into_future());
    let (requests, connections) = (options.requests.get(), options.connections.get());
    if subject == Subject::RedisRepeats {
        // Repeats at the same time would get the answer that the first request is under way.
        ask(address, subject, 0, 1).await?;
    }
    let share = requests.div_ceil(connections);
    let mut clients = JoinSet::new();
    let start = meter.start().await?;
    for client in 0..connections {
        let number = share.min(requests.saturating_sub(client * share));
        clients.spawn(ask(address, subject, client + 1, number));
    }
    while let Some(asked) = clients.join_next().await {
        asked??;
    }
    let cost = meter.stop(start).await?;
    server.abort();
    let expected = if subject == Subject::RedisRepeats { 1 } else { requests };
    let called = calls.load(Relaxed);
    if called != expected {
        return Err(format!("{subject}: {called} calls of the handler, not {expected}").into());
    }
    let [_, client, ..] = cost.per_record(requests);
    let rate = cost.rate(requests);
    let wait = connections as f64 / rate * 1e6;
    Ok([
        Figure { name: "rate", unit: "requests/s", value: Some(rate) },
        Figure { name: "processor", unit: "us/request", value: client.value },
        Figure { name: "wait", unit: "us/request", value: Some(wait) },
    ])
}

async fn app(
    stage: &Stage<Postgres>,
    options: &Options,
    subject: Subject,
    calls: Arc<AtomicUsize>,
) -> Result<Router> {
    let handler = async move || {
        calls.fetch_add(1, Relaxed);
        Json(ResultEnvelope::ok("placed"))
    };
    let app = Router::new().route("/orders", post(handler));
    let outer = ServiceBuilder::new().layer(TraceIdLayer::new()).layer(EnvelopeLayer::new());
    // The name of this subject and run keeps its keys apart from earlier ones.
    let name = format!("bench-{}", uuid::Uuid::now_v7().simple());
    let limit = RateLimitLayer::builder(&name, UNREACHED);
    let redis = Redis::open(&options.redis).await?;
    Ok(match subject {
        Subject::Plain => app,
        Subject::Trace => app.layer(outer),
        Subject::LocalLimit => app.layer(outer.layer(limit.build()?)),
        Subject::RedisLimit => app.layer(outer.layer(limit.store(redis).build()?)),
        Subject::RedisKeys | Subject::RedisRepeats => {
            let limit = limit.store(redis.clone()).build()?;
            app.layer(outer.layer(limit).layer(keys(redis, &name)?))
        }
        Subject::DatabaseKeys => {
            let store = SqlStore::builder(stage.pool.clone()).table_prefix("keylane_bench_web_").build()?;
            store.migrate().await?;
            app.layer(outer.layer(limit.store(redis).build()?).layer(keys(store, &name)?))
        }
    })
}

fn keys(store: impl IdempotencyStore, scope: &str) -> Result<IdempotencyLayer> {
    // Redis deletes the keys a minute after the run.
    Ok(IdempotencyLayer::builder(store, scope).keep(std::time::Duration::from_secs(60)).build()?)
}

/// Requests one after another on one connection, each with a key of its own unless they are repeats.
async fn ask(address: SocketAddr, subject: Subject, client: usize, number: usize) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    for request in 0..number {
        let key = match subject {
            Subject::RedisRepeats => "repeat".to_owned(),
            _ => format!("{client}-{request}"),
        };
        let request = Request::post("/orders").header("host", "bench").header("x-idempotency-key", key);
        let answer = sender.send_request(request.body(Full::new(Bytes::from_static(b"{}")))?).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if !status.is_success() {
            return Err(format!("{subject}: a request was answered with {status}").into());
        }
    }
    connection.abort();
    Ok(())
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Trace => "trace, errors",
            Self::LocalLimit => "and a limit in memory",
            Self::RedisLimit => "and a limit in Redis",
            Self::RedisKeys => "all, new keys in Redis",
            Self::RedisRepeats => "all, repeats from Redis",
            Self::DatabaseKeys => "all, new keys in the database",
        })
    }
}
