//! `bench claimed`: a backlog without order, drained by claims, against loops written by hand that take the same
//! three steps with the same batch.
//!
//! Each instance and each loop is a process of its own. The time is from their start to the last outcome written.

mod by_hand;
pub(crate) mod process;

use std::{fmt, num::NonZeroUsize};

use clap::Args;
use futures::future::{join_all, try_join_all};
use keylane::Mode;

use self::process::{Process, Work};
use super::{
    Result,
    engine::Engine,
    meter::{Figure, Meter},
    options::{Load, Show, Tuning},
    plot::Curve,
    report::Report,
    stage::Stage,
    watch::{rates, watched},
};

/// Options of `bench claimed`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of the backlog.
    #[arg(long, default_value = "200000")]
    records: NonZeroUsize,
    /// How many processes with an instance each, and as many with a loop, one number after another.
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

impl Subject {
    /// The work of each of its processes, and how many there are.
    fn work(self) -> (Work, usize) {
        match self {
            Self::Library(count) => (Work::Instance(Mode::Claimed), count),
            Self::Partitioned(count) => (Work::Instance(Mode::Partitioned), count),
            Self::Loops(count) => (Work::Loop, count),
        }
    }
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
    let config = options.tuning.applied_to(stage.config.clone());
    let (work, count) = subject.work();
    let start = (0..count).map(|_| Process::start(stage, &config, work, records));
    let mut processes = try_join_all(start).await?;
    let meter = Meter::<E>::open(&stage.pool).await?;
    let start = meter.start().await?;
    for process in &mut processes {
        process.go().await?;
    }
    let drained = async {
        tokio::select! {
            () = tally.all_handled() => Ok(()),
            ended = try_join_all(processes.iter_mut().map(|process| process.follow(&tally))) => ended.map(drop),
        }
    };
    let ((), course) = watched(drained, &tally, &stage.bar).await?;
    let mut cost = meter.stop(start).await?;
    // The processor time of this process is that of the watching.
    cost.client = None;
    for share in join_all(processes.into_iter().map(Process::end)).await {
        let share = share?;
        tally.merge(&share.seen, share.wrong);
        cost.client = Some(cost.client.unwrap_or_default() + share.processor);
    }
    tally.check()?;
    let left = stage.left().await?;
    if left > 0 {
        return Err(format!("{subject}: {left} records are left in the table").into());
    }
    let curve = Curve { label: subject.to_string(), unit: "records/s", points: rates(&course) };
    Ok((cost.per_record(records).to_vec(), curve))
}
