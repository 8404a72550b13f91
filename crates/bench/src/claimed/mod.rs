//! `bench claimed`: a backlog without order, drained by claims, against loops written by hand that take the same
//! three steps with the same batch.
//!
//! All instances run in this process. The time is from their start to the last outcome written.

mod by_hand;

use std::{fmt, num::NonZeroUsize, sync::Arc};

use clap::Args;
use keylane::{Mode, Registration, Running};

use self::by_hand::drain;
use super::{
    Result,
    engine::Engine,
    handler::{Count, HANDLER},
    meter::{Figure, Meter},
    options::{Load, Show, Tuning},
    plot::Curve,
    report::Report,
    stage::Stage,
    tally::Tally,
    watch::{rates, watched},
};

/// Options of `bench claimed`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of the backlog.
    #[arg(long, default_value = "200000")]
    records: NonZeroUsize,
    /// How many instances, and as many loops, one number after another.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    instances: Vec<NonZeroUsize>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Who drains, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Library(usize),
    Loops(usize),
    /// The mode with partitions, for a comparison of the modes.
    Partitioned(usize),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(count) => write!(f, "library, {count}"),
            Self::Loops(count) => write!(f, "loops, {count}"),
            Self::Partitioned(count) => write!(f, "partitioned, {count}"),
        }
    }
}

/// Drains with each subject in turn, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, or if the work was not done.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("claimed", E::NAME);
    let counts = || options.instances.iter().map(|count| count.get());
    let mut turn: Vec<Subject> =
        counts().flat_map(|count| [Subject::Library(count), Subject::Loops(count)]).collect();
    turn.extend(counts().min().map(Subject::Partitioned));
    let runs = options.show.runs.get();
    for run in 1..=runs {
        let mut measured = Vec::new();
        for subject in &turn {
            stage.bar.set_message(format!("run {run} of {runs}: {subject}"));
            let (figures, curve) = measure(stage, options, *subject).await?;
            report.add_all(&subject.to_string(), &figures);
            report.curve(curve);
            measured.push((*subject, figures));
        }
        compare(&measured, &mut report);
        turn.rotate_left(1);
    }
    let Load { keys, payload_bytes } = options.load;
    let batch = options.tuning.applied_to(stage.config.clone()).delivery.batch_size;
    report.note(format!("{} records of {payload_bytes} bytes, {keys} keys, batch {batch}", options.records));
    Ok(report)
}

/// The ratio of each figure of the library to that of as many loops, within one run.
fn compare(measured: &[(Subject, Vec<Figure>)], report: &mut Report) {
    for (subject, ours) in measured {
        let (Subject::Library(count) | Subject::Partitioned(count)) = *subject else { continue };
        let of = |other: Subject| measured.iter().find(|(subject, _)| *subject == other);
        let (name, theirs) = match subject {
            Subject::Library(_) => (format!("library / loops, {count}"), of(Subject::Loops(count))),
            _ => (format!("partitioned / library, {count}"), of(Subject::Library(count))),
        };
        let Some((_, theirs)) = theirs else { continue };
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours.over(theirs));
        report.add_all(&name, &ratios.collect::<Vec<_>>());
    }
}

async fn measure<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    subject: Subject,
) -> Result<(Vec<Figure>, Curve)> {
    // The mode of the tables belongs to the subject.
    stage.set_up().await?;
    let records = options.records.get();
    let tally = stage.fill(records, options.load).await?;
    let meter = Meter::<E>::open(&stage.pool).await?;
    let start = meter.start().await?;
    let work = work(stage, options, subject, &tally);
    let (running, course) = watched(work, &tally, &stage.bar).await?;
    let cost = meter.stop(start).await?;
    for running in running {
        running.shutdown().await;
    }
    tally.check()?;
    let left = stage.left().await?;
    if left > 0 {
        return Err(format!("{subject}: {left} records are left in the table").into());
    }
    let curve = Curve { label: subject.to_string(), unit: "records/s", points: rates(&course) };
    Ok((cost.per_record(records).to_vec(), curve))
}

/// Drains to the end. The library goes on until it is shut down.
async fn work<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    subject: Subject,
    tally: &Arc<Tally>,
) -> Result<Vec<Running>> {
    let mut config = options.tuning.applied_to(stage.config.clone());
    let (count, mode) = match subject {
        Subject::Library(count) => (count, Mode::Claimed),
        Subject::Partitioned(count) => (count, Mode::Partitioned),
        Subject::Loops(count) => {
            drain::<E>(&stage.pool, tally, count, config.delivery.batch_size).await?;
            return Ok(Vec::new());
        }
    };
    config.mode = mode;
    let mut instances = Vec::with_capacity(count);
    for _ in 0..count {
        let handler = Registration::typed(HANDLER, Count(Arc::clone(tally)));
        instances.push(stage.outbox(config.clone(), handler, tally).await?.start().await?);
    }
    tally.all_settled().await;
    Ok(instances)
}
