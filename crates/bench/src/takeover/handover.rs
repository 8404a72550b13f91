//! One of two instances is shut down while events arrive.

use std::{sync::Arc, time::Duration};

use keylane::partition::PARTITION_COUNT;
use tokio::time::{Instant, sleep};

use super::{Engine, Entry, Report, Result, Takeover, course, longest, millis};

/// How long events arrive before the shutdown, for comparison, and after it.
const CALM: Duration = Duration::from_secs(2);

/// Measures how long the partitions take to reach the other instance, and how long events wait meanwhile.
pub(super) async fn measure<E: Engine>(
    bench: &Takeover<'_, E>,
    phase: Duration,
    report: &mut Report,
) -> Result<()> {
    bench.stage.empty().await?;
    let arrivals = bench.arrivals();
    let mut leaving = bench.instance(&arrivals).await?;
    let mut staying = bench.instance(&arrivals).await?;
    for instance in [&mut leaving, &mut staying] {
        bench.held(&mut instance.held, PARTITION_COUNT / 2).await?;
    }
    let outboxes = vec![staying.outbox.clone(), leaving.outbox.clone()];
    let flow = tokio::spawn(Arc::clone(&arrivals).send(outboxes, bench.rate()));
    sleep(CALM + phase).await;

    let called = Instant::now();
    let shutdown = async {
        let report = leaving.running.shutdown().await;
        (report, called.elapsed())
    };
    let taken_over = async {
        bench.held(&mut staying.held, PARTITION_COUNT).await?;
        Result::Ok(called.elapsed())
    };
    let ((left, shut_down), taken_over) = tokio::join!(shutdown, taken_over);
    let taken_over = taken_over?;
    if !left.graceful {
        return Err(format!("the shutdown was not graceful: {left:?}").into());
    }
    sleep(CALM).await;
    arrivals.stop();
    flow.await??;
    arrivals.all_entered().await?;
    staying.running.shutdown().await;

    let entries: Vec<Entry> = arrivals.entries().collect();
    let calm = longest(entries.iter().filter(|entry| entry.at < called));
    let disturbed = longest(entries.iter().filter(|entry| entry.at >= called));
    let times = [millis("all taken over", Some(taken_over)), millis("shutdown", Some(shut_down)), disturbed];
    report.add_all("handover", &times);
    report.add_all("calm", &[calm]);
    report.add_all("handover / calm", &[disturbed.over(&calm)]);
    report.curve(course("handover", &entries));
    Ok(())
}
