//! `bench writers`: drains beside transactions of other writers, against a drain without.
//!
//! Each case has one instance. First it drains many records, whose dead rows stay in the table while a transaction of
//! the case is open. Then it drains records that one commit makes visible. They are measured from that commit to the
//! last call of the handler. In the end the long transaction commits, and the time is measured until its own record,
//! if it has written one, and the next record are handled.

mod case;
mod count;
mod others;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use clap::Args;
use keylane::{Completed, Outbox, Registration};
use tokio::time::Instant;

use self::{case::Case, count::Counted, others::Others};
use super::{
    Result,
    engine::Engine,
    handler::HANDLER,
    meter::{Figure, Meter},
    options::{Load, Show, Tuning, seconds},
    pile::{Keys, Pile, Stored},
    report::Report,
    stage::Stage,
    tally::Event,
};

/// The records that are handled before another writer begins.
const FIRST: usize = 5;

/// Options of `bench writers`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
pub(crate) struct Options {
    /// Records that are measured.
    #[arg(long, default_value = "500000")]
    records: NonZeroUsize,
    /// Records that are drained before these, while the transaction is open.
    #[arg(long, default_value = "1000000")]
    settled: NonZeroUsize,
    /// The least time for which the long transaction is open before anything is measured.
    #[arg(long, default_value = "0", value_parser = seconds)]
    open: Duration,
    /// Completed records are kept.
    #[arg(long)]
    keep: bool,
    /// Only these cases, beside the one without other writers.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Case>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Measures each case in turn, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, or if the work was not done.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("writers", E::NAME);
    let mut turn = Case::all::<E>();
    let asked = |case: &Case| options.only.is_empty() || options.only.contains(case) || *case == Case::Plain;
    turn.retain(asked);
    let runs = options.show.runs.get();
    for run in 1..=runs {
        let mut measured = Vec::new();
        for case in turn.iter().copied() {
            stage.bar.set_message(format!("run {run} of {runs}: {case}"));
            let figures = measure(stage, options, case).await?;
            report.add_all(&case.to_string(), &figures);
            measured.push((case, figures));
        }
        compare(&measured, &mut report);
        turn.rotate_left(1);
    }
    let Options { records, settled, open, keep, load, .. } = options;
    report
        .note(format!("{records} records of {} bytes, {} keys, are drained", load.payload_bytes, load.keys));
    report.note(format!("{settled} were settled before; the long transaction was open for {open:?} or more"));
    report.note(format!("completed records are {}", if *keep { "kept" } else { "deleted" }));
    Ok(report)
}

/// The ratio of each figure of a case to that of the plain case.
fn compare(measured: &[(Case, Vec<Figure>)], report: &mut Report) {
    let plain = measured.iter().find(|(case, _)| *case == Case::Plain);
    let Some((_, plain)) = plain else { return };
    for (case, figures) in measured.iter().filter(|(case, _)| *case != Case::Plain) {
        let ratios: Vec<Figure> = figures.iter().zip(plain).map(|(ours, theirs)| ours.over(theirs)).collect();
        report.add_all(&format!("{case} / {}", Case::Plain), &ratios);
    }
}

async fn measure<E: Engine>(stage: &Stage<E>, options: &Options, case: Case) -> Result<Vec<Figure>> {
    let [records, settled] = [options.records, options.settled].map(NonZeroUsize::get);
    let pile = Pile::new(stage, options.load).await?;
    let counted = Arc::new(Counted::default());
    let mut config = options.tuning.applied_to(stage.config.clone());
    if options.keep {
        config.retention.completed = Completed::Keep;
    }
    let handler = Registration::typed(HANDLER, counted.handler());
    let builder = Outbox::builder(stage.pool.clone()).config(config).handler(handler);
    let outbox: Outbox<E> = builder.build().await?;
    let running = outbox.start().await?;
    let schedule_one = async || {
        let event = Event::of_key(0, options.load);
        outbox.transaction(async |tx| outbox.schedule(tx, &event).await).await.map(drop)
    };
    // From its first settles the instance knows how to bound the ids of later transactions.
    for handled in 1..=FIRST {
        schedule_one().await?;
        counted.until(handled).await?;
    }

    let began = Instant::now();
    let mut others = Others::begin(stage, case, options.load).await?;
    pile.add(settled, Keys::All, Stored::Pending).await?;
    schedule_one().await?;
    counted.until(FIRST + settled + 1).await?;
    tokio::time::sleep_until(began + case.open_for(options.open)).await;
    let mut conn = E::connect(&stage.pool).await?;
    for refresh in E::REFRESH {
        E::execute(&mut conn, *refresh).await?;
    }
    let before = counted.handled();
    E::execute(&mut conn, E::BEGIN).await?;
    pile.add_on(&mut conn, records, Keys::All, Stored::Pending).await?;
    let meter = Meter::<E>::open(&stage.pool).await?;
    let committed = meter.start().await?;
    E::execute(&mut conn, "COMMIT").await?;
    schedule_one().await?;
    counted.until(before + records).await?;
    let mut figures = meter.stop(committed).await?.per_record(records).to_vec();
    let written = others.end().await?;
    counted.until(FIRST + settled + 2 + records + written).await?;
    if case.is_long() {
        let ended = Instant::now();
        others.commit_long().await?;
        schedule_one().await?;
        counted.until(FIRST + settled + 3 + case.written_late() + records + written).await?;
        let stall = ended.elapsed().as_secs_f64() * 1e3;
        figures.push(Figure { name: "until the last is handled", unit: "ms", value: Some(stall) });
    }
    running.shutdown().await;
    counted
        .check(FIRST + settled + 2 + usize::from(case.is_long()) + case.written_late() + records + written)?;
    Ok(figures)
}
