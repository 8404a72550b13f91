//! Requests, answers and Redis servers of the tests.

use std::{
    env, fs,
    net::TcpListener,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use keylane_web::{BoxError, Redis};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    sync::Semaphore,
};
use tower::{Service, ServiceExt};

/// How long a test waits at most for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A name that no other test has, in this run or another.
pub(crate) fn unique(what: &str) -> String {
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{what}-{}-{nanos}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed))
}

pub(crate) fn address() -> String {
    env::var("KEYLANE_TEST_REDIS_URL").expect("KEYLANE_TEST_REDIS_URL: eval \"$(dev/services env)\"")
}

/// The Redis of `dev/services`.
pub(crate) async fn redis() -> Redis {
    Redis::open(&address()).await.unwrap()
}

/// A connection that reads what the guards have written.
pub(crate) async fn raw_redis() -> keylane_web::redis_client::aio::MultiplexedConnection {
    let client = keylane_web::redis_client::Client::open(address()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A POST with an idempotency key, if it is not empty.
pub(crate) fn post(key: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let mut request = Request::post("/orders");
    if !key.is_empty() {
        request = request.header("x-idempotency-key", key);
    }
    request.body(Full::new(body.into())).unwrap()
}

/// Sends a request to a service, and reads the whole answer.
pub(crate) fn send<S, A, B, E>(
    service: &S,
    request: Request<A>,
) -> impl Future<Output = Response<Bytes>> + use<S, A, B, E>
where
    S: Service<Request<A>, Response = Response<B>, Error = E> + Clone,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
    E: std::fmt::Debug,
{
    let service = service.clone();
    let answer = async move {
        let (head, body) = service.oneshot(request).await.unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    };
    async move { tokio::time::timeout(PATIENCE, answer).await.expect("no answer") }
}

/// Asks every 10 ms until it holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.expect("it never holds");
}

/// The code in an envelope.
pub(crate) fn code(answer: &Response<Bytes>) -> String {
    let value: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    value["code"].as_str().unwrap().to_owned()
}

pub(crate) fn header<'a>(answer: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Counts its calls.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicUsize>);

impl Calls {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// A service that counts its calls and answers with their number.
pub(crate) fn counting<A: Send + 'static>(
    calls: &Calls,
) -> impl Service<Request<A>, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ use<A> {
    let calls = calls.clone();
    tower::service_fn(move |_| {
        let number = calls.add();
        async move { Ok(Response::new(Full::new(Bytes::from(number.to_string())))) }
    })
}

/// A service that counts its calls, and answers `placed` when the gate lets it.
pub(crate) fn gated<A: Send + 'static>(
    calls: &Calls,
    gate: &Arc<Semaphore>,
) -> impl Service<Request<A>, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ use<A> {
    let (calls, gate) = (calls.clone(), Arc::clone(gate));
    tower::service_fn(move |_| {
        let (calls, gate) = (calls.clone(), Arc::clone(&gate));
        async move {
            calls.add();
            drop(gate.acquire_owned().await?);
            Ok(Response::new(Full::new(Bytes::from_static(b"placed"))))
        }
        .boxed()
    })
}

/// A Redis process of a test, which keeps what it has acknowledged.
pub(crate) struct OwnRedis {
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
}

impl OwnRedis {
    pub(crate) async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = env::temp_dir().join(format!("keylane-web-{}", unique("redis")));
        fs::create_dir_all(&folder).unwrap();
        let mut own = Self { port, folder, process: None };
        own.restart().await;
        own
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) async fn open(&self) -> Redis {
        Redis::open(&self.address()).await.unwrap()
    }

    pub(crate) async fn restart(&mut self) {
        let (port, folder) = (self.port.to_string(), self.folder.to_str().unwrap());
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port, "--dir", folder])
            .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("redis-server: dev/services install redis");
        self.process = Some(process);
        let client = keylane_web::redis_client::Client::open(self.address()).unwrap();
        until(async || client.get_multiplexed_async_connection().await.is_ok()).await;
    }

    pub(crate) async fn kill(&mut self) {
        self.process.take().unwrap().kill().await.unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.process.as_ref().unwrap().id().unwrap();
        kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.process = None;
        _ = fs::remove_dir_all(&self.folder);
    }
}
