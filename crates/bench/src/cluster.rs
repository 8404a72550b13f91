//! `bench cluster`: a backlog, drained by several instances on one database.
//!
//! All instances run in this process and share out the partitions before the measured time. The backlog then becomes
//! visible with one commit, and every instance is notified of it. So the figures have neither the start of the cluster
//! nor its balancing nor the poll interval.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use clap::Args;
use keylane::{Config, Outbox, Registration, Running};

use super::{
    Result,
    engine::Engine,
    handler::{Count, HANDLER},
    meter::{Figure, Meter},
    options::{Load, Show, Tuning},
    plot::Curve,
    report::Report,
    stage::{CHUNK, Stage},
    tally::{Event, Tally},
    watch::{rates, watched},
};

/// The time between two counts of the sessions that wait for a lock.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Options of `bench cluster`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of the backlog.
    #[arg(long, default_value = "200000")]
    records: NonZeroUsize,
    /// The numbers of instances, one after another.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    instances: Vec<NonZeroUsize>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Drains with each number of instances in turn, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, or if the work was not done.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("cluster", E::NAME);
    let mut turn: Vec<usize> = options.instances.iter().map(|instances| instances.get()).collect();
    let least = turn.iter().copied().min().unwrap_or(1);
    let runs = options.show.runs.get();
    for run in 1..=runs {
        let mut rates = Vec::new();
        for instances in &turn {
            stage.bar.set_message(format!("run {run} of {runs}: {instances} instances"));
            let (figures, curve) = measure(stage, options, *instances).await?;
            report.add_all(&instances.to_string(), &figures);
            report.curve(curve);
            rates.push((*instances, figures[0]));
        }
        let one = rates.iter().find(|(instances, _)| *instances == least);
        for (instances, rate) in rates.iter().filter(|(instances, _)| *instances > least) {
            report.add_all(&format!("{instances} / {least}"), one.map(|(_, one)| rate.over(one)).as_slice());
        }
        turn.rotate_left(1);
    }
    let Load { keys, payload_bytes } = options.load;
    report.note(format!("{} records of {payload_bytes} bytes, {keys} keys", options.records));
    Ok(report)
}

async fn measure<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    instances: usize,
) -> Result<(Vec<Figure>, Curve)> {
    // New tables, without the rows of instances that have left.
    stage.set_up().await?;
    let records = options.records.get();
    // Ids may have gaps, at most as large as an insert has rows.
    let tally = Arc::new(Tally::new(records, 1..=4 * records as i64));
    let deadlocks = count::<E>(stage, E::DEADLOCKS).await?;
    let (outboxes, cluster) = start(stage, options, instances, &tally).await?;
    let first = outboxes.first().ok_or("no instance was asked for")?;

    let events: Vec<Event> = (0..records).map(|number| Event::numbered(number, options.load)).collect();
    let mut tx = E::begin(&stage.pool).await?;
    for chunk in events.chunks(CHUNK) {
        first.schedule_all(&mut tx, chunk).await?;
    }
    let meter = Meter::<E>::open(&stage.pool).await?;
    let clocks = meter.start().await?;
    E::commit(tx).await?;
    outboxes.iter().for_each(Outbox::wake);
    let mut waits = None;
    let done = async {
        tally.all_settled().await;
        Ok(())
    };
    let ((), course) = tokio::select! {
        done = watched(done, &tally, &stage.bar) => done?,
        Err(error) = count_lock_waits(stage, &mut waits) => return Err(error),
    };
    let cost = meter.stop(clocks).await?;
    for running in cluster {
        running.shutdown().await;
    }
    tally.check()?;

    let deadlocks =
        count::<E>(stage, E::DEADLOCKS).await?.zip(deadlocks).map(|(after, before)| after - before);
    let times =
        |name, count: Option<i64>| Figure { name, unit: "count", value: count.map(|count| count as f64) };
    let mut figures = cost.per_record(records).to_vec();
    figures.extend([times("deadlocks", deadlocks), times("lock waits over 100 ms", waits)]);
    Ok((figures, Curve { label: instances.to_string(), unit: "records/s", points: rates(&course) }))
}

/// Starts the instances and lets them share out the partitions, which they do in a second or two.
async fn start<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    instances: usize,
    tally: &Arc<Tally>,
) -> Result<(Vec<Outbox<E>>, Vec<Running>)> {
    let mut config: Config = options.tuning.applied_to(stage.config.clone());
    config.cluster.heartbeat_interval = Duration::from_secs(1);
    config.cluster.rebalance_interval = Duration::from_millis(500);
    let (mut outboxes, mut cluster) = (Vec::new(), Vec::new());
    for _ in 0..instances {
        let handler = Registration::typed(HANDLER, Count(Arc::clone(tally)));
        let outbox = stage.outbox(config.clone(), [handler], tally).await?;
        cluster.push(outbox.start().await?);
        outboxes.push(outbox);
    }
    stage.balanced(instances).await?;
    Ok((outboxes, cluster))
}

async fn count<E: Engine>(stage: &Stage<E>, sql: Option<&'static str>) -> Result<Option<i64>> {
    match sql {
        Some(sql) => Ok(Some(E::number(&mut E::connect(&stage.pool).await?, sql).await?)),
        None => Ok(None),
    }
}

/// Counts the sessions that wait for a lock, until it is aborted. `None` if the server does not tell.
async fn count_lock_waits<E: Engine>(stage: &Stage<E>, seen: &mut Option<i64>) -> Result<()> {
    let Some(sql) = E::LOCK_WAITS else { return std::future::pending().await };
    let mut conn = E::connect(&stage.pool).await?;
    loop {
        *seen = Some(seen.unwrap_or(0) + E::number(&mut conn, sql).await?);
        tokio::time::sleep(SAMPLE_INTERVAL).await;
    }
}
