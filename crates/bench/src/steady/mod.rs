//! `bench steady`: records come and go at a steady rate for a given time, on an instance with the given settings and
//! a server with its own clean-up.
//!
//! In the middle another writer keeps a transaction open for a tenth of the time: until it commits, the
//! server cannot clean up, and its record is older than all that have come since.

mod course;

use std::{sync::Arc, time::Duration};

use clap::Args;
use keylane::Outbox;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::course::{Course, TENTHS, Tenth};
use super::{
    Result,
    arrivals::Arrivals,
    engine::Engine,
    meter::Figure,
    options::{Load, Show, Tuning, seconds},
    plot::Curve,
    report::Report,
    stage::Stage,
};

/// When the other writer begins and ends, as shares of the time.
const OPEN: (f64, f64) = (0.45, 0.55);
/// Events per transaction.
const TOGETHER: usize = 10;

/// Options of `bench steady`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("runs", |arg| arg.default_value("1")))]
pub(crate) struct Options {
    /// Records per second, in transactions of ten.
    #[arg(long, default_value_t = 5000.0)]
    rate: f64,
    /// The length of the run.
    #[arg(long, default_value = "600", value_parser = seconds)]
    seconds: Duration,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Lets records come and go, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, or if events do not reach their handlers any more.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("steady", E::NAME);
    let runs = options.show.runs.get();
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}"));
        let course = measure(stage, options).await?;
        let arrivals = Figure { name: "arrivals", unit: "records/s", value: course.rate() };
        report.add_all("all", &[arrivals]);
        describe(&course.tenths(), options.rate, &mut report);
        report.curve(Curve { label: "p99 of each second".into(), unit: "ms", points: course.points() });
    }
    let Load { keys, payload_bytes } = options.load;
    let open = options.seconds.mul_f64(OPEN.1 - OPEN.0);
    report.note(format!(
        "{} records/s of {payload_bytes} bytes, {keys} keys, for {:?}",
        options.rate, options.seconds
    ));
    report.note(format!("in the middle a transaction was open for {open:?}"));
    Ok(report)
}

fn describe(tenths: &[Tenth; TENTHS], rate: f64, report: &mut Report) {
    let figure = |name, unit, value| Figure { name, unit, value };
    for (number, tenth) in (1..).zip(tenths) {
        report.add_all(
            &format!("tenth {number}"),
            &[
                figure("p50", "ms", tenth.p50),
                figure("p99", "ms", tenth.p99),
                figure("table and indexes", "MiB", tenth.bytes.map(|bytes| bytes as f64 / 1048576.0)),
                figure("largest backlog", "records", Some(tenth.backlog as f64)),
            ],
        );
    }
    let [first, .., closed, _, _, last] = tenths;
    let over = |last: Option<f64>, first: Option<f64>| last.zip(first).map(|(last, first)| last / first);
    let bytes = |tenth: &Tenth| tenth.bytes.map(|bytes| bytes as f64);
    report.add_all("last / first", &[figure("p99", "ratio", over(last.p99, first.p99))]);
    report
        .add_all("last / seventh", &[figure("table and indexes", "ratio", over(bytes(last), bytes(closed)))]);
    report.add_all("last", &[figure("backlog", "s", Some(last.backlog as f64 / rate))]);
}

async fn measure<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Course> {
    stage.set_up().await?;
    stage.bar.set_length(options.seconds.as_secs());
    let events = (options.rate * options.seconds.as_secs_f64()) as usize;
    // The last one is that of the open transaction.
    let arrivals = Arrivals::new(events + 1, options.load);
    let config = options.tuning.applied_to(stage.config.clone());
    let outbox: Outbox<E> = arrivals.outbox(stage, config).build().await?;
    let running = outbox.start().await?;

    let start = Instant::now();
    let mut course = Course::new(start, options.seconds);
    let [from, to] = [OPEN.0, OPEN.1].map(|share| start + options.seconds.mul_f64(share));
    let open = async {
        sleep_until(from).await;
        // With one writer at a time, an open transaction would keep out all others.
        arrivals.commit_at(&outbox, events, if connections::<E>() > 1 { to } else { from }).await
    };
    let passing = async {
        tokio::try_join!(send(&arrivals, &outbox, events, options.rate, start), open)?;
        arrivals.all_entered().await
    };
    tokio::select! {
        passed = passing => passed?,
        Err(error) = course.watch(stage, &arrivals) => return Err(error),
    }
    course.add(arrivals.entries());
    running.shutdown().await;
    Ok(course)
}

/// The number of connections that is of use for writing.
fn connections<E: Engine>() -> usize {
    E::SINGLY.iter().copied().max().unwrap_or(1)
}

/// Commits the events by the clock, some in each transaction.
async fn send<E: Engine>(
    arrivals: &Arc<Arrivals>,
    outbox: &Outbox<E>,
    events: usize,
    rate: f64,
    start: Instant,
) -> Result<()> {
    let mut writers = JoinSet::new();
    let connections = connections::<E>();
    for writer in 0..connections {
        let (arrivals, outbox) = (Arc::clone(arrivals), outbox.clone());
        writers.spawn(async move {
            for first in (0..events).step_by(TOGETHER).skip(writer).step_by(connections) {
                sleep_until(start + Duration::from_secs_f64(first as f64 / rate)).await;
                arrivals.commit_together(&outbox, first..(first + TOGETHER).min(events)).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(())
}
