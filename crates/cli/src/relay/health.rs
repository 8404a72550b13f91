//! Health over HTTP, for probes and people. Connections, bytes and time are bounded.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use keylane::health::{Degradation, Health, HealthState};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::workers::InForce;

const CONNECTIONS: usize = 32;
/// The longest life of one connection.
const TIME: Duration = Duration::from_secs(5);
/// The smallest buffer that the HTTP implementation accepts.
const HEADER_BYTES: usize = 8 * 1024;
/// The pause after a connection could not be accepted, for example because no file handle was free.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that answers until it is dropped.
pub(crate) struct HealthServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HealthServer {
    /// Begins to answer.
    ///
    /// # Errors
    /// The server cannot bind the address.
    pub(crate) async fn listen(address: SocketAddr, workers: InForce) -> io::Result<Self> {
        let told =
            |error: io::Error| io::Error::new(error.kind(), format!("relay.health {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(told)?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(accept(listener, workers)) })
    }

    /// The address of the server, with the real port if port 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, workers: InForce) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let workers = workers.clone();
                tokio::spawn(async move {
                    // The connection of a client that is too slow is closed.
                    let _ = timeout(TIME, serve(stream, workers)).await;
                    drop(place);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, workers: InForce) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &workers);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    let _ = http
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

fn answer(method: &Method, path: &str, workers: &InForce) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return response(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "only GET and HEAD" }));
    }
    let running = workers.borrow().clone();
    let health = running.as_ref().map(|running| running.health());
    let (live, ready) = health.as_ref().map_or((true, false), |health| (health.live, health.ready));
    let status = |good| if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match path {
        "/health/live" => response(status(live), &json!({ "live": live })),
        "/health/ready" => response(status(ready), &json!({ "ready": ready })),
        "/health" => {
            let instance = running.map(|running| running.instance().to_string());
            let version = env!("CARGO_PKG_VERSION");
            let (state, reasons) = state(health.as_ref());
            let whole = json!({
                "live": live, "ready": ready, "state": state, "reasons": reasons,
                "instance": instance, "version": version,
            });
            response(status(live), &whole)
        }
        _ => response(
            StatusCode::NOT_FOUND,
            &json!({ "error": "there are /health, /health/live and /health/ready" }),
        ),
    }
}

/// The state as one word, and the reasons.
fn state(health: Option<&Health>) -> (&'static str, Vec<String>) {
    match health.map(|health| &health.state) {
        None => ("starting", vec!["the workers have not joined yet: is the database away?".to_owned()]),
        Some(HealthState::Degraded(reasons)) => {
            ("degraded", reasons.iter().map(Degradation::to_string).collect())
        }
        Some(_) => ("healthy", Vec::new()),
    }
}

fn response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use keylane::{
        Outbox,
        memory::{Memory, MemoryPool},
    };
    use keylane_kafka::{KafkaConfig, KafkaSink, Route};
    use tokio::{runtime::Runtime, sync::watch};

    use super::*;

    #[test]
    fn workers_that_have_died_are_not_live() {
        let runtime = Runtime::new().unwrap();
        let running = runtime.block_on(async {
            let sink = KafkaSink::new(KafkaConfig::new("127.0.0.1:1")).unwrap().route(Route::to("orders"));
            let builder = Outbox::builder(MemoryPool::new()).handler(sink.registration("relay"));
            let outbox: Outbox<Memory> = builder.build().await.unwrap();
            outbox.migrate().await.unwrap();
            outbox.start().await.unwrap()
        });
        let (tell, workers) = watch::channel(Some(Arc::new(running)));
        let status = |path| answer(&Method::GET, path, &workers).status();
        assert_eq!(status("/health/live"), StatusCode::OK);
        // The workers end with the runtime that they run on, without having been asked to.
        drop(runtime);
        for path in ["/health/live", "/health/ready", "/health"] {
            assert_eq!(status(path), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        }
        drop(tell);
    }
}
