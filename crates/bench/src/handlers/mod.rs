//! `bench handlers`: handlers that wait, like those that call another service.

mod hot;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use clap::Args;
use keylane::Registration;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Result,
    engine::Engine,
    handler::{Count, HANDLER, Slow},
    meter::Figure,
    options::{Load, Show, Tuning},
    plot::Curve,
    report::Report,
    stage::Stage,
    trial,
    watch::rates,
};

/// Options of `bench handlers`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("concurrency", |arg| arg.default_value("512")))]
pub(crate) struct Options {
    /// Records of the backlog, without those of the hot key.
    #[arg(long, default_value = "100000")]
    records: NonZeroUsize,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    /// How long a handler waits, milliseconds.
    #[arg(long, value_name = "MILLIS", default_value = "5")]
    handler_delay: u64,
    /// Records of one more key, which lie before all others; 50000 if no number is given.
    #[arg(long, value_name = "RECORDS", num_args = 0..=1, default_missing_value = "50000")]
    hot: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(super) show: Show,
}

impl Options {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.handler_delay)
    }
}

/// Measures waiting handlers, or the effect of a hot key on the others.
///
/// # Errors
/// Also if the work was not done.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("handlers", E::NAME);
    let runs = options.show.runs.get();
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}"));
        match options.hot {
            Some(hot) => hot::measure(stage, options, hot.get(), &mut report).await?,
            None => measure(stage, options, &mut report).await?,
        }
    }
    let Load { keys, payload_bytes } = options.load;
    let concurrency = options.tuning.applied_to(stage.config.clone()).delivery.concurrency;
    report.note(format!("{} records of {payload_bytes} bytes, {keys} keys", options.records));
    report.note(format!("handlers wait {:?}, {concurrency} at once", options.delay()));
    Ok(report)
}

/// The library's rate beside what the delay allows, by arithmetic and by the timer of the runtime.
async fn measure<E: Engine>(stage: &Stage<E>, options: &Options, report: &mut Report) -> Result<()> {
    let records = options.records.get();
    let config = options.tuning.applied_to(stage.config.clone());
    let concurrency = config.delivery.concurrency;

    let tally = stage.fill(records, options.load).await?;
    let handler = Slow { delay: options.delay(), handler: Count(Arc::clone(&tally)) };
    let outbox = stage.outbox(config, [Registration::typed(HANDLER, handler)], &tally).await?;
    let (cost, course) = trial::measured(stage, outbox, &tally, tally.all_settled()).await?;
    tally.check()?;
    report.curve(Curve { label: "library".into(), unit: "records/s", points: rates(&course) });

    let library = cost.per_record(records);
    let rate = |rate: f64| Figure { name: "rate", unit: "records/s", value: Some(rate) };
    let sleeps = rate(sleeps(records, concurrency, options.delay()).await?);
    report.add_all("library", &library);
    report.add_all("sleeps", &[sleeps]);
    report.add_all("library / sleeps", &[library[0].over(&sleeps)]);
    if options.handler_delay > 0 {
        let ideal = rate(concurrency as f64 / options.delay().as_secs_f64());
        report.add_all("library / ideal", &[library[0].over(&ideal)]);
    }
    Ok(())
}

/// One wait per record, in as many tasks as there are calls at once, and no other work. Returns waits per second.
async fn sleeps(records: usize, tasks: usize, delay: Duration) -> Result<f64> {
    let started = Instant::now();
    let mut sleepers = JoinSet::new();
    for task in 0..tasks {
        let share = (task..records).step_by(tasks).len();
        sleepers.spawn(async move {
            for _ in 0..share {
                tokio::time::sleep(delay).await;
            }
        });
    }
    while let Some(ended) = sleepers.join_next().await {
        ended?;
    }
    Ok(records as f64 / started.elapsed().as_secs_f64())
}
