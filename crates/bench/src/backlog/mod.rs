//! `bench backlog`: other records in the table must not slow down delivery.
//!
//! In each case an instance drains the same number of records. The cases differ in the other records of the table. The
//! clock stops when that number is settled, even if more are left.

mod case;

use std::num::NonZeroUsize;

use self::case::Case;
use super::{
    Result,
    engine::Engine,
    meter::Figure,
    options::{Load, Show, Tuning},
    pile::Pile,
    plot::Curve,
    report::Report,
    stage::Stage,
    trial,
    turns::in_turn,
    watch::rates,
};
use clap::Args;
use futures::FutureExt;

/// Options of `bench backlog`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of a large backlog: pending, owned by another instance, or completed.
    #[arg(long, default_value = "1000000")]
    records: NonZeroUsize,
    /// Records that are drained. The plain cases have no others.
    #[arg(long, default_value = "50000")]
    drained: NonZeroUsize,
    /// Records that are held behind one blocked key.
    #[arg(long, default_value = "100000")]
    held: NonZeroUsize,
    /// These cases only.
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
    let mut report = Report::new("backlog", E::NAME);
    let mut cases = Case::all::<E>();
    cases.retain(|case| options.only.is_empty() || options.only.contains(case));
    let pairs: Vec<_> =
        cases.iter().filter_map(|case| case.reference().map(|reference| (*case, reference))).collect();
    let measure = |case| measure(stage, options, case).boxed();
    in_turn(stage, &options.show, &mut report, cases, &pairs, measure).await?;
    let Options { records, drained, held, load, .. } = options;
    report
        .note(format!("{drained} records of {} bytes, {} keys, are drained", load.payload_bytes, load.keys));
    report.note(format!("large backlogs have {records} records, {held} are held"));
    Ok(report)
}

async fn measure<E: Engine>(stage: &Stage<E>, options: &Options, case: Case) -> Result<([Figure; 4], Curve)> {
    let pile = Pile::new(stage, options.load).await?;
    let _writer = case.writer(stage).await?;
    case.arrange(stage, &pile, options).await?;
    let tally = stage.tally(options.drained.get()).await?;
    let handler = case.handler(&tally);
    let config = case.applied_to(options.tuning.applied_to(stage.config.clone()));
    let outbox = stage.outbox(config, [handler], &tally).await?;
    let (cost, course) = trial::measured(stage, outbox, &tally, case.done(&tally)).await?;
    tally.check_part()?;
    let curve = Curve { label: case.to_string(), unit: "records/s", points: rates(&course) };
    let handled = course.last().map_or(tally.records(), |(_, handled)| *handled);
    Ok((cost.per_record(handled), curve))
}
