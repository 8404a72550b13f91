//! `bench latency`: from the return of a commit to the handler, with events that arrive steadily.

use std::{fmt, sync::Arc, time::Duration};

use clap::Args;

use super::{
    Engine, Result,
    arrivals::Arrivals,
    commits,
    meter::Figure,
    options::{Load, Show, Tuning, seconds},
    plot::Histogram,
    quantile::quantile,
    report::Report,
    stage::Stage,
};

/// Arrivals that do not count, because connections are opened and statements prepared.
const WARM_UP: Duration = Duration::from_millis(500);
/// The time between two fetches of the reference.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Options of `bench latency`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Events per second, each of these rates in turn.
    #[arg(long, value_delimiter = ',', default_value = "100,2000", value_parser = rate)]
    pub(super) rates: Vec<f64>,
    /// Only events of another process, with the settings as they are: PostgreSQL notifies of them, on other
    /// databases fetches follow the traffic.
    #[arg(long)]
    pub(super) other_process: bool,
    /// How long they arrive at each rate.
    #[arg(long, default_value = "5", value_parser = seconds)]
    pub(super) seconds: Duration,
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("a rate is a positive number of events a second".to_owned()),
    }
}

/// How the instance learns of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The transaction of the library in the same process wakes the instance.
    Woken,
    /// The database notifies the instance of commits of another outbox, which shares only the database with it.
    Notified,
    /// The settings decide. Another process commits.
    Elsewhere,
    /// The instance polls every [`POLL_INTERVAL`].
    Polling,
}

/// Measures each way at each rate in turn, as many times as `--runs` says.
///
/// # Errors
/// Also if an event has not reached its handler.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("latency", E::NAME);
    let mut turn = vec![Way::Woken, Way::Polling];
    if E::NOTIFIES {
        turn.insert(1, Way::Notified);
    }
    if options.other_process {
        turn = vec![Way::Elsewhere];
    }
    let runs = options.show.runs.get();
    for run in 1..=runs {
        for rate in &options.rates {
            let mut measured = Vec::new();
            for way in turn.iter().copied() {
                stage.bar.set_message(format!("run {run} of {runs}: {way} at {rate}/s"));
                let (figures, histogram) = measure(stage, options, way, *rate).await?;
                report.add_all(&histogram.label, &figures);
                report.histogram(histogram);
                measured.push((way, figures));
            }
            let polling = measured.iter().find(|(way, _)| *way == Way::Polling).map(|(_, figures)| *figures);
            for (way, figures) in measured.iter().filter(|(way, _)| *way != Way::Polling) {
                let ratios = figures.iter().zip(polling.iter().flatten());
                let ratios: Vec<Figure> = ratios.map(|(ours, theirs)| ours.over(theirs)).collect();
                report.add_all(&format!("{way} / {} at {rate}/s", Way::Polling), &ratios);
            }
        }
        turn.reverse();
    }
    let Load { keys, payload_bytes } = options.load;
    report.note(format!("{payload_bytes} bytes, {keys} keys, each event in a transaction of its own"));
    if options.other_process {
        let interval = stage.config.delivery.poll_interval;
        report.note(format!("committed by another process; polls every {interval:?}"));
        return Ok(report);
    }
    report.note(format!("polling: nothing wakes the instance; it polls every {POLL_INTERVAL:?}, and sooner while there is traffic"));
    Ok(report)
}

async fn measure<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    way: Way,
    rate: f64,
) -> Result<([Figure; 5], Histogram)> {
    stage.empty().await?;
    let arriving = |time: Duration| (rate * time.as_secs_f64()).ceil() as usize;
    let mut config = options.tuning.applied_to(stage.config.clone());
    let warm_up = match way {
        // If nothing tells of the first event, it waits for a poll.
        Way::Elsewhere => WARM_UP + config.delivery.poll_interval.mul_f64(1.1),
        Way::Woken | Way::Notified | Way::Polling => WARM_UP,
    };
    let (warm_up, counted) = (arriving(warm_up), arriving(options.seconds).max(2));
    let arrivals = Arrivals::new(warm_up + counted, options.load);
    match way {
        Way::Woken | Way::Notified | Way::Elsewhere => {}
        Way::Polling => {
            config.delivery.poll_interval = POLL_INTERVAL;
            config.database.notifications = false;
        }
    }
    let outbox = arrivals.outbox(stage, config.clone()).build().await?;
    let running = outbox.start().await?;
    match way {
        Way::Woken => Arc::clone(&arrivals).send(vec![outbox], rate).await?,
        Way::Elsewhere => commits::elsewhere(&arrivals, stage, &config, rate).await?,
        // An outbox without workers: its commits wake no worker of this process.
        Way::Notified | Way::Polling => {
            let producer = arrivals.outbox(stage, config).build().await?;
            Arc::clone(&arrivals).send(vec![producer], rate).await?;
        }
    }
    arrivals.all_entered().await?;
    running.shutdown().await;
    let left = stage.left().await?;
    if left > 0 {
        return Err(format!("{way} at {rate}/s has left {left} records in the table").into());
    }
    let counted = arrivals.entries().filter(|entry| entry.number >= warm_up);
    let mut millis: Vec<f64> = counted.map(|entry| entry.waited.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let arrived = Figure { name: "arrivals", unit: "events/s", value: arrivals.rate(warm_up) };
    let [p50, p90, p99, max] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)]
        .map(|(name, share)| Figure { name, unit: "ms", value: quantile(&millis, share) });
    Ok(([p50, p90, p99, max, arrived], Histogram { label: format!("{way} at {rate}/s"), millis }))
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Woken => "library",
            Self::Notified => "notified",
            Self::Elsewhere => "other process",
            Self::Polling => "polling",
        })
    }
}
