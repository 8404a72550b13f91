//! One of two instances is killed while events arrive.

use std::{sync::Arc, time::Duration};

use keylane::partition::PARTITION_COUNT;
use tokio::time::{Instant, sleep};

use super::{Engine, Entry, Instance, Report, Result, Takeover, Worker, course, longest, millis};

/// Between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// How long events arrive before the kill.
const CALM: Duration = Duration::from_secs(1);

/// Measures the time until the other instance has all partitions of the killed one, and until it delivers a record of
/// them.
pub(super) async fn measure<E: Engine>(
    bench: &Takeover<'_, E>,
    phase: Duration,
    report: &mut Report,
) -> Result<()> {
    bench.stage.empty().await?;
    let arrivals = bench.arrivals();
    let mut survivor = bench.instance(&arrivals).await?;
    let mut worker = Worker::start(bench.stage, &bench.config)?;
    bench.until("another process has its half", shared(bench, &survivor, &mut worker)).await?;
    let flow = tokio::spawn(Arc::clone(&arrivals).send(vec![survivor.outbox.clone()], bench.rate()));
    sleep(CALM + phase).await;

    let own = *survivor.held.borrow();
    drop(worker);
    let killed = Instant::now();
    bench.held(&mut survivor.held, PARTITION_COUNT).await?;
    let taken_over = killed.elapsed();
    let orphaned = |entry: &Entry| entry.at > killed && !own.contains(arrivals.partition(entry.number));
    let first_record = async {
        while !arrivals.entries().any(|entry| orphaned(&entry)) {
            sleep(SAMPLE_INTERVAL).await;
        }
        Ok(())
    };
    bench.until("a record of the dead instance is delivered", first_record).await?;
    sleep(CALM).await;
    arrivals.stop();
    flow.await??;
    let nothing_left = async {
        while bench.stage.left().await? > 0 {
            sleep(SAMPLE_INTERVAL).await;
        }
        Ok(())
    };
    bench.until("all records are delivered", nothing_left).await?;
    survivor.running.shutdown().await;

    let entries: Vec<Entry> = arrivals.entries().collect();
    let orphans = || entries.iter().filter(|entry| orphaned(entry));
    let first_record = orphans().map(|entry| entry.at - killed).min();
    // The other process is not notified of earlier events: they would wait for its poll.
    let told = orphans().filter(|entry| entry.at - entry.waited >= killed);
    let all = millis("all taken over", Some(taken_over));
    let bound = millis("all taken over", Some(bench.bound()));
    report.add_all("crash", &[all, millis("first record", first_record), longest(told)]);
    report.add_all("bound", &[bound]);
    report.add_all("crash / bound", &[all.over(&bound)]);
    report.curve(course("crash", &entries));
    Ok(())
}

/// Returns when this instance has half of the partitions and the worker the other.
async fn shared<E: Engine>(
    bench: &Takeover<'_, E>,
    survivor: &Instance<E>,
    worker: &mut Worker,
) -> Result<()> {
    const FREE: &str = "SELECT COUNT(*) FROM keylane_bench_partition WHERE owner IS NULL";
    let mut conn = E::connect(&bench.stage.pool).await?;
    while survivor.held.borrow().len() != PARTITION_COUNT / 2 || E::number(&mut conn, FREE).await? > 0 {
        if worker.has_ended()? {
            return Err("the second instance has ended before it could be killed".into());
        }
        sleep(SAMPLE_INTERVAL).await;
    }
    Ok(())
}
