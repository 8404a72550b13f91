//! From the start of an instance to the first record in its handler.

use std::{hint::black_box, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Arrivals, Engine, Figure, Report, Result, Takeover, millis};

/// Starts the library, then a loop by hand; one record is pending each time.
pub(super) async fn measure<E: Engine>(bench: &Takeover<'_, E>, report: &mut Report) -> Result<()> {
    let figure = |time| -> Figure { millis("first record", Some(time)) };
    let (library, by_hand) = (figure(library(bench).await?), figure(by_hand(bench).await?));
    report.add_all("start", &[library]);
    report.add_all("start by hand", &[by_hand]);
    report.add_all("start / start by hand", &[library.over(&by_hand)]);
    Ok(())
}

/// From the call of `start` to the handler.
pub(super) async fn library<E: Engine>(bench: &Takeover<'_, E>) -> Result<Duration> {
    let arrivals = one_pending(bench).await?;
    let outbox = arrivals.outbox(bench.stage, bench.config.clone()).build().await?;
    let started = Instant::now();
    let running = outbox.start().await?;
    arrivals.all_entered().await?;
    running.shutdown().await;
    let entry = arrivals.entries().next().ok_or("the record has not reached its handler")?;
    Ok(entry.at - started)
}

/// Connect, fetch, handle.
async fn by_hand<E: Engine>(bench: &Takeover<'_, E>) -> Result<Duration> {
    one_pending(bench).await?;
    let started = Instant::now();
    let mut conn = E::connect(&bench.stage.pool).await?;
    let rows = E::fetch(&mut conn, &[], 500).await?;
    let ids = rows.iter().map(E::id).collect::<Result<Vec<_>>>()?;
    let elapsed = started.elapsed();
    E::delete(&mut conn, black_box(&ids)).await?;
    match ids.len() {
        1 => Ok(elapsed),
        found => Err(format!("{found} records were pending instead of one").into()),
    }
}

async fn one_pending<E: Engine>(bench: &Takeover<'_, E>) -> Result<Arc<Arrivals>> {
    bench.stage.empty().await?;
    let arrivals = Arrivals::new(1, bench.options.load);
    let producer = arrivals.outbox(bench.stage, bench.config.clone()).build().await?;
    arrivals.commit(&[producer], 0).await?;
    Ok(arrivals)
}
