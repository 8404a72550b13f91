//! `bench steady`: records come and go at a steady rate, for as long as asked, on an instance with the
//! settings that it is given and a server that cleans up as it does.
//!
//! In the middle another writer keeps a transaction open for a tenth of the time: until it commits, the
//! server cannot clean up, and its record is older than all that have come since.

mod course;
mod flow;

use std::{sync::Arc, time::Duration};

use clap::Args;
use keylane::{Outbox, Registration};

use self::{
    course::{Course, TENTHS, Tenth},
    flow::{Enter, Flow},
};
use super::{
    Result,
    engine::Engine,
    handler::HANDLER,
    meter::Figure,
    options::{Load, Show, Tuning, seconds},
    plot::Curve,
    report::Report,
    stage::Stage,
};

/// When the other writer begins and ends, as shares of the time.
const OPEN: (f64, f64) = (0.45, 0.55);
/// For so long after the last commit, all must have come to their handlers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of `bench steady`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("runs", |arg| arg.default_value("1")))]
pub(crate) struct Options {
    /// Records a second, in transactions of ten.
    #[arg(long, default_value_t = 5000.0)]
    rate: f64,
    /// For how long.
    #[arg(long, default_value = "600", value_parser = seconds)]
    seconds: Duration,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Lets records come and go, as often as asked.
///
/// # Errors
/// Also if they do not come to their handlers any more.
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
    let flow = Flow::new(options.rate, options.seconds, options.load);
    let config = options.tuning.applied_to(stage.config.clone());
    let handler = Registration::typed(HANDLER, Enter(Arc::clone(&flow)));
    let outbox: Outbox<E> =
        Outbox::builder(stage.pool.clone()).config(config).handler(handler).build().await?;
    let running = outbox.start().await?;
    let mut course = Course::new(options.seconds);

    let connections = E::SINGLY.iter().copied().max().unwrap_or(1);
    let [from, to] = [OPEN.0, OPEN.1].map(|share| flow.start() + options.seconds.mul_f64(share));
    let hold = async {
        match connections {
            // Two writers would exclude each other.
            1 => flow.hold(&stage.pool, &outbox, from, from).await,
            _ => flow.hold(&stage.pool, &outbox, from, to).await,
        }
    };
    let done = async {
        tokio::try_join!(flow.send(&outbox, connections), hold)?;
        tokio::time::timeout(PATIENCE, flow.all_entered()).await.map_err(|_| {
            format!("{} records have not come to their handler in {PATIENCE:?}", flow.backlog())
        })?;
        Result::Ok(())
    };
    tokio::select! {
        done = done => done?,
        Err(error) = course.watch(stage, &flow) => return Err(error),
    }
    course.add(flow.passages());
    running.shutdown().await;
    Ok(course)
}
