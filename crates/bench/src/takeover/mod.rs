//! `bench takeover`: how long records wait for an instance that starts, leaves or dies.

mod crash;
mod handover;
mod start;

use std::{future::Future, num::NonZeroU32, sync::Arc, time::Duration};

use clap::Args;
use keylane::{ClusterConfig, Config, Outbox, Running, partition::PartitionSet};
use tokio::{sync::watch, time::timeout};

use super::{
    Engine, Result,
    arrivals::{Arrivals, Entry},
    holdings::Holdings,
    meter::Figure,
    options::{Load, Show},
    plot::Curve,
    report::Report,
    stage::Stage,
    worker::Worker,
};

/// Options of `bench takeover`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Events per second that arrive while an instance leaves or dies.
    #[arg(long, default_value = "100")]
    pub(super) rate: NonZeroU32,
    /// Uses the given cluster settings. Without it, settings that equal the defaults are replaced by short times.
    #[arg(long)]
    pub(super) defaults: bool,
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Measures a start, a handover and a crash, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, if records are lost, or if no instance takes over.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("takeover", E::NAME);
    let bench = Takeover { stage, options, config: settings(stage.config.clone(), options.defaults) };
    let runs = options.show.runs.get();
    // The first start on new tables takes longer than later ones.
    start::library(&bench).await?;
    for run in 1..=runs {
        let says = |what: &str| stage.bar.set_message(format!("run {run} of {runs}: {what}"));
        // Each run kills at another time since the last view, because the other instance waits for its next view.
        let phase = bench.config.cluster.rebalance_interval * (run - 1) as u32 / runs as u32;
        says("start");
        start::measure(&bench, &mut report).await?;
        says("handover");
        handover::measure(&bench, phase, &mut report).await?;
        says("crash");
        crash::measure(&bench, phase, &mut report).await?;
    }
    let ClusterConfig { heartbeat_interval, stale_instance_timeout, rebalance_interval, .. } =
        bench.config.cluster;
    report.note(format!(
        "beats every {heartbeat_interval:?}, stale after {stale_instance_timeout:?}, rebalances every {rebalance_interval:?}"
    ));
    report.note(format!("{} events per second arrive during handover and crash", options.rate));
    Ok(report)
}

/// Short times, unless the settings differ from the defaults.
fn settings(mut config: Config, keep_defaults: bool) -> Config {
    if config.cluster == ClusterConfig::default() && !keep_defaults {
        config.cluster.heartbeat_interval = Duration::from_millis(500);
        config.cluster.stale_instance_timeout = Duration::from_secs(3);
        config.cluster.rebalance_interval = Duration::from_millis(500);
        // Shorter than the stale timeout.
        config.database.call_timeout = config.database.call_timeout.min(Duration::from_secs(2));
    }
    config
}

struct Takeover<'a, E: Engine> {
    stage: &'a Stage<E>,
    options: &'a Options,
    config: Config,
}

/// One instance of the library in this process.
struct Instance<E: Engine> {
    outbox: Outbox<E>,
    running: Running,
    held: watch::Receiver<PartitionSet>,
}

impl<E: Engine> Takeover<'_, E> {
    /// Starts an instance that delivers these events.
    async fn instance(&self, arrivals: &Arc<Arrivals>) -> Result<Instance<E>> {
        let (observer, held) = Holdings::new();
        let outbox = arrivals.outbox(self.stage, self.config.clone()).observer(observer).build().await?;
        let running = outbox.start().await?;
        Ok(Instance { outbox, running, held })
    }

    /// As many events as arrive within the longest wait here.
    fn arrivals(&self) -> Arc<Arrivals> {
        Arrivals::new((self.rate() * self.limit().as_secs_f64()) as usize, self.options.load)
    }

    fn rate(&self) -> f64 {
        self.options.rate.get().into()
    }

    /// A dead instance is replaced within this time.
    fn bound(&self) -> Duration {
        let cluster = &self.config.cluster;
        cluster.stale_instance_timeout + 3 * cluster.rebalance_interval + Duration::from_secs(2)
    }

    /// The bench fails if something takes longer.
    fn limit(&self) -> Duration {
        3 * self.bound() + Duration::from_secs(30)
    }

    /// Waits for something, up to a limit.
    async fn until<T>(&self, what: &str, happens: impl Future<Output = Result<T>>) -> Result<T> {
        match timeout(self.limit(), happens).await {
            Ok(happened) => happened,
            Err(_) => Err(format!("not within {:?}: {what}", self.limit()).into()),
        }
    }

    /// Returns when so many partitions are held.
    async fn held(&self, held: &mut watch::Receiver<PartitionSet>, partitions: usize) -> Result<()> {
        let what = format!("an instance holds {partitions} partitions");
        let so_many = async {
            held.wait_for(|held| held.len() == partitions).await?;
            Ok(())
        };
        self.until(&what, so_many).await
    }
}

/// The longest wait of some events.
fn longest<'e>(entries: impl Iterator<Item = &'e Entry>) -> Figure {
    millis("longest wait", entries.map(|entry| entry.waited).max())
}

fn millis(name: &'static str, time: Option<Duration>) -> Figure {
    Figure { name, unit: "ms", value: time.map(|time| time.as_secs_f64() * 1e3) }
}

/// The wait of each event, by the time of its end.
fn course(label: &str, entries: &[Entry]) -> Curve {
    let start = entries.iter().map(|entry| entry.at).min();
    let point = |entry: &Entry| Some(((entry.at - start?).as_secs_f64(), entry.waited.as_secs_f64() * 1e3));
    let mut points: Vec<(f64, f64)> = entries.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve { label: label.to_owned(), unit: "ms waited", points }
}
