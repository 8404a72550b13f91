//! `bench idle`: the cost of instances that have nothing to do.

mod usage;

use std::{fmt, num::NonZeroUsize, time::Duration};

use clap::Args;
use futures::future::{join_all, try_join_all};
use keylane::{
    Outbox, Registration, Running,
    partition::{PARTITION_COUNT, PartitionSet},
};
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

use self::usage::Usage;
use super::{
    Engine, Result,
    arrivals::Enter,
    handler::HANDLER,
    holdings::Holdings,
    meter::Figure,
    options::{Show, seconds},
    report::Report,
    stage::Stage,
    statements,
};

/// Records per fetch of the loop.
const BATCH: i64 = 500;
const BEYOND_POLLS: &str = "statements beyond polls";
/// The cluster is quiet when nothing has changed for this time.
const SETTLING: Duration = Duration::from_secs(2);
/// The bench fails if the cluster is not quiet after this time.
const UNREST: Duration = Duration::from_secs(120);

/// Options of `bench idle`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Instances of the library, all in this process.
    #[arg(long, default_value = "1")]
    pub(super) instances: NonZeroUsize,
    /// How long they are watched.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub(super) seconds: Duration,
    #[command(flatten)]
    pub(super) show: Show,
}

/// A subject that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Library,
    /// The same number of loops, which only fetch, once per poll interval.
    Loop,
}

/// Watches the library and the loops in turn, as many times as `--runs` says.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("idle", E::NAME);
    let bench = Idle { stage, options };
    let mut turn = [Subject::Library, Subject::Loop];
    let runs = options.show.runs.get();
    for run in 1..=runs {
        let mut measured = Vec::new();
        for subject in turn {
            stage.bar.set_message(format!("run {run} of {runs}: {subject}"));
            let figures = bench.measure(subject).await?;
            report.add_all(&subject.to_string(), &figures);
            measured.push((subject, figures));
        }
        measured.sort_by_key(|(subject, _)| *subject == Subject::Loop);
        let [(_, library), (_, reference)] = &measured[..] else { continue };
        let ratios = library.iter().zip(reference).map(|(ours, theirs)| ours.over(theirs));
        // The loop only polls.
        let ratios: Vec<Figure> = ratios.filter(|ratio| ratio.name != BEYOND_POLLS).collect();
        report.add_all("library / loop", &ratios);
        turn.reverse();
    }
    let cluster = &stage.config.cluster;
    report.note(format!("{} instances on empty tables, processor time of all", options.instances));
    report.note(format!(
        "polls every {:?}, beats every {:?}, reads the cluster every {:?}, the handlers every {:?}",
        stage.config.delivery.poll_interval,
        cluster.heartbeat_interval,
        cluster.rebalance_interval,
        stage.config.schedule.route_refresh
    ));
    report.note("server: the sessions of the subject only, not what writes and vacuums in the background");
    Ok(report)
}

struct Idle<'a, E: Engine> {
    stage: &'a Stage<E>,
    options: &'a Options,
}

impl<E: Engine> Idle<'_, E> {
    async fn measure(&self, subject: Subject) -> Result<Vec<Figure>> {
        self.stage.empty().await?;
        match subject {
            Subject::Library => {
                let start = timeout(UNREST, self.start());
                let running =
                    start.await.map_err(|_| format!("no rest within {UNREST:?} after the start"))??;
                let figures = self.watch().await;
                join_all(running.into_iter().map(Running::shutdown)).await;
                figures
            }
            Subject::Loop => {
                let mut loops = JoinSet::new();
                for _ in 0..self.options.instances.get() {
                    loops.spawn(poll::<E>(self.stage.pool.clone(), self.stage.config.delivery.poll_interval));
                }
                sleep(SETTLING).await;
                let figures = self.watch().await;
                match loops.try_join_next() {
                    Some(stopped) => stopped?.and(figures),
                    None => figures,
                }
            }
        }
    }

    /// Starts the instances, each with its own connections, and waits until no partition moves any more.
    async fn start(&self) -> Result<Vec<Running>> {
        let (mut outboxes, mut holdings) = (Vec::new(), Vec::new());
        for _ in 0..self.options.instances.get() {
            let (observer, held) = Holdings::new();
            let Stage { pool, config, .. } = self.stage;
            let builder = Outbox::builder(pool.clone()).config(config.clone());
            let handler = Registration::typed(HANDLER, Enter(None));
            outboxes.push(builder.handler(handler).observer(observer).build().await?);
            holdings.push(held);
        }
        let running = try_join_all(outboxes.iter().map(Outbox::<E>::start)).await?;
        // The others see a late instance with their next view.
        let cluster = &self.stage.config.cluster;
        let next_view = if running.len() > 1 { cluster.rebalance_interval } else { Duration::ZERO };
        let quiet = SETTLING + next_view;
        let sample = || holdings.iter().map(|held| *held.borrow()).collect::<Vec<_>>();
        let (mut known, mut since) = (sample(), Instant::now());
        while since.elapsed() < quiet || known.iter().map(PartitionSet::len).sum::<usize>() < PARTITION_COUNT
        {
            sleep(Duration::from_millis(50)).await;
            let seen = sample();
            if seen != known {
                (known, since) = (seen, Instant::now());
            }
        }
        Ok(running)
    }

    /// The cost of the subject while it is watched.
    async fn watch(&self) -> Result<Vec<Figure>> {
        let mut conn = E::connect(&self.stage.pool).await?;
        let before = Usage::start::<E>(&mut conn).await?;
        sleep(self.options.seconds).await;
        let spent = before.stop::<E>(&mut conn).await?;
        let instances = self.options.instances.get() as f64;
        let share = |time: Option<Duration>| time.map(|time| 100.0 * time.as_secs_f64() / spent.seconds);
        let (client, server) = (share(spent.client), share(spent.server));
        let both = match E::IN_PROCESS {
            true => client,
            false => client.zip(server).map(|(client, server)| client + server),
        };
        let a_minute = |count: u64| Some(count as f64 * 60.0 / spent.seconds / instances);
        let figure = |name, unit, value| Figure { name, unit, value };
        Ok(vec![
            figure("client processor", "% of a core", client),
            figure("server processor", "% of a core", server),
            figure("processor", "% of a core", both),
            figure("statements", "/min and instance", a_minute(spent.statements)),
            figure("connections", "/instance", spent.connections.map(|count| count as f64 / instances)),
            figure(BEYOND_POLLS, "/min and instance", a_minute(spent.statements - spent.polls)),
        ])
    }
}

/// Fetches at each interval, as the simplest consumer does.
async fn poll<E: Engine>(pool: E::Pool, every: Duration) -> Result<()> {
    let mut conn = E::connect(&pool).await?;
    if let Some(name) = E::NAME_SESSION {
        E::execute(&mut conn, name).await?;
    }
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        E::fetch(&mut conn, &[], BATCH).await?;
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "library",
            Self::Loop => "loop",
        })
    }
}
