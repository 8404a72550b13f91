//! Drains pending no-op records, against a hand-written loop of the same SQL and batch, in turns.
//!
//! `cargo bench --bench drain -- [--records N] [--runs N]` with `KEYLANE_TEST_POSTGRES_URL` set.
//! Prints each run and the ratio of the rates: median, minimum and maximum.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use keylane::{
    AfterFailure, Config, Delivery, Handler, HandlerError, Outbox, OutboxEvent, Registration,
    sqlx::{self, PgPool, Postgres, Row},
};
use tokio::{sync::Notify, time::Instant};

const KEYS: usize = 10_000;
const BATCH: i64 = 500;
const DROP: &str = "DROP SCHEMA IF EXISTS keylane_bench_drain CASCADE";

#[derive(serde::Serialize, serde::Deserialize)]
struct Event {
    key: usize,
    text: String,
}

impl OutboxEvent for Event {
    const RECORD_TYPE: &'static str = "bench.event";

    fn key(&self) -> Cow<'_, str> {
        format!("key-{}", self.key).into()
    }
}

struct Count {
    done: Arc<AtomicUsize>,
    total: usize,
    finished: Arc<Notify>,
}

impl Handler for Count {
    type Event = Event;

    async fn handle(&self, _: Event, _: &Delivery) -> Result<(), HandlerError> {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.total {
            self.finished.notify_one();
        }
        Ok(())
    }
}

fn argument(name: &str, default: usize) -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Processor time of this process and of all PostgreSQL servers of the machine, in microseconds.
fn processor_time() -> [f64; 2] {
    let ticks = |stat: &str| -> f64 {
        let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
        fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10_000.0
    };
    let own = ticks(&std::fs::read_to_string("/proc/self/stat").unwrap());
    let servers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        stat.contains("(postgres)").then(|| ticks(&stat))
    });
    [own, servers.sum()]
}

async fn outbox(pool: &PgPool, total: usize) -> (Outbox<Postgres>, Arc<Notify>) {
    let finished = Arc::new(Notify::new());
    let count = Count { done: Arc::default(), total, finished: Arc::clone(&finished) };
    let config = Config { schema: Some("keylane_bench_drain".to_owned()), ..Config::default() };
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .handler(Registration::typed("count", count).after_failure(AfterFailure::Continue))
        .build()
        .await
        .unwrap();
    (outbox, finished)
}

async fn fill(pool: &PgPool, outbox: &Outbox<Postgres>, records: usize) {
    sqlx::query("TRUNCATE keylane_bench_drain.outbox_record").execute(pool).await.unwrap();
    let text = "x".repeat(160);
    for start in (0..records).step_by(10_000) {
        let events: Vec<Event> = (start..records.min(start + 10_000))
            .map(|number| Event { key: number * 7919 % KEYS, text: text.clone() })
            .collect();
        let mut tx = pool.begin().await.unwrap();
        outbox.schedule_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();
    }
    sqlx::query("VACUUM ANALYZE keylane_bench_drain.outbox_record").execute(pool).await.unwrap();
}

/// The reference: fetch 500 by id, decode, call, delete them in one statement.
async fn by_hand(pool: &PgPool, records: usize) -> f64 {
    let mut conn = pool.acquire().await.unwrap();
    let started = Instant::now();
    let mut done = 0;
    while done < records {
        let rows = sqlx::query(
            "SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers, \
             attempts FROM keylane_bench_drain.outbox_record WHERE status = 0 ORDER BY id LIMIT $1",
        )
        .bind(BATCH)
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let event: Event = serde_json::from_slice(row.get(7)).unwrap();
            std::hint::black_box((event.key, event.text.len(), row.get::<String, _>(3)));
            ids.push(row.get::<i64, _>(0));
        }
        sqlx::query("DELETE FROM keylane_bench_drain.outbox_record WHERE id = ANY($1)")
            .bind(&ids)
            .execute(&mut *conn)
            .await
            .unwrap();
        done += rows.len();
    }
    records as f64 / started.elapsed().as_secs_f64()
}

async fn by_library(outbox: &Outbox<Postgres>, finished: &Notify, pool: &PgPool, records: usize) -> f64 {
    let started = Instant::now();
    let running = outbox.start().await.unwrap();
    finished.notified().await;
    loop {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM keylane_bench_drain.outbox_record")
            .fetch_one(pool)
            .await
            .unwrap();
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = records as f64 / started.elapsed().as_secs_f64();
    running.shutdown().await;
    rate
}

#[tokio::main]
async fn main() {
    let (records, runs) = (argument("--records", 200_000), argument("--runs", 5));
    let url = std::env::var("KEYLANE_TEST_POSTGRES_URL").unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    sqlx::query(DROP).execute(&pool).await.unwrap();
    outbox(&pool, records).await.0.migrate().await.unwrap();
    let mut ratios = Vec::new();
    for run in 0..runs {
        let (outbox, finished) = outbox(&pool, records).await;
        let mut rates = [0.0; 2];
        for turn in [run % 2, 1 - run % 2] {
            fill(&pool, &outbox, records).await;
            let before = processor_time();
            rates[turn] = match turn {
                0 => by_hand(&pool, records).await,
                _ => by_library(&outbox, &finished, &pool, records).await,
            };
            let after = processor_time();
            let [client, server] = [0, 1].map(|side| (after[side] - before[side]) / records as f64);
            let who = ["by hand", "library"][turn];
            println!(
                "run {run}: {who} {:.0}/s, client {client:.1} us, server {server:.1} us a record",
                rates[turn]
            );
        }
        let ratio = rates[1] / rates[0];
        println!("run {run}: ratio {ratio:.2}");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let (median, last) = (ratios[ratios.len() / 2], ratios.len() - 1);
    println!("ratio median {median:.2}, min {:.2}, max {:.2}, runs {runs}", ratios[0], ratios[last]);
    sqlx::query(DROP).execute(&pool).await.unwrap();
}
