//! What only shows with several processes: a shared bucket, and an execution that is killed.

use std::{env, process::Stdio, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use keylane_web::{BoxError, GuardBody, IdempotencyLayer, Limit, RateLimitLayer};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::{Layer, service_fn};

use crate::stage::{Calls, PATIENCE, code, counting, post, redis, send, unique, until};

/// Tells a process of this test binary what it is.
const WORKER: &str = "KEYLANE_WEB_TEST_WORKER";
const PROCESSES: usize = 4;
/// More from each process than all may have together.
const REQUESTS: usize = 300;
const CAPACITY: u32 = 200;
const LEASE: Duration = Duration::from_secs(2);

/// What a process does that was started by a test; in a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    match what.split_once(' ').unwrap() {
        ("burst", name) => burst(name).await,
        ("hang", scope) => hang(scope).await,
        (target, what) => crate::tables::work(target, what).await,
    }
}

async fn burst(name: &str) {
    // One token in a minute: none comes while a burst lasts.
    let limit = Limit::per_minute(1).burst(CAPACITY);
    let builder = RateLimitLayer::builder(name, limit).store(redis().await.timeout(PATIENCE));
    let service =
        builder.when_away(keylane_web::WhenAway::Refuse).build().unwrap().layer(counting(&Calls::default()));
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let service = service.clone();
        requests.spawn(async move { send(&service, post("", "")).await.status() });
    }
    let statuses = requests.join_all().await;
    let count = |wanted: StatusCode| statuses.iter().filter(|status| **status == wanted).count();
    eprintln!("allowed {} refused {}", count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS));
}

async fn hang(scope: &str) {
    let handler = service_fn(async |_: Request<GuardBody>| -> Result<Response<Full<Bytes>>, BoxError> {
        eprintln!("executing");
        std::future::pending().await
    });
    let builder = IdempotencyLayer::builder(redis().await, scope).lease(LEASE);
    send(&builder.build().unwrap().layer(handler), post("key", "order")).await;
}

pub(crate) struct Worker {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Worker {
    pub(crate) fn start(what: &str, name: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::worker", "--nocapture"])
            .env(WORKER, format!("{what} {name}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that begins so, without that beginning.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        let line = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("the process has ended");
                if let Some(rest) = line.strip_prefix(beginning) {
                    return rest.to_owned();
                }
            }
        };
        timeout(PATIENCE, line).await.expect("the process is silent")
    }
}

#[tokio::test]
async fn a_burst_over_four_processes_is_cut_at_the_capacity() {
    let name = unique("burst");
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start("burst", &name)).collect();
    let (mut allowed, mut refused) = (0, 0);
    for worker in &mut workers {
        let said = worker.says("allowed ").await;
        let (one, other) = said.split_once(" refused ").unwrap();
        allowed += one.parse::<usize>().unwrap();
        refused += other.parse::<usize>().unwrap();
    }
    assert_eq!((allowed, refused), (CAPACITY as usize, PROCESSES * REQUESTS - CAPACITY as usize));
}

#[tokio::test]
async fn the_key_of_a_killed_process_is_free_after_its_lease() {
    let (scope, calls) = (unique("killed"), Calls::default());
    let mut worker = Worker::start("hang", &scope);
    worker.says("executing").await;
    let begun = Instant::now();
    worker.child.kill().await.unwrap();
    let builder = IdempotencyLayer::builder(redis().await, &scope).lease(LEASE);
    let service = builder.build().unwrap().layer(counting(&calls));
    until(async || {
        let answer = send(&service, post("key", "order")).await;
        answer.status() == StatusCode::OK || code(&answer) != "A0401"
    })
    .await;
    let free_after = begun.elapsed();
    assert!((1_000..2_500).contains(&free_after.as_millis()), "{free_after:?}");
    assert_eq!(calls.count(), 1);
}
