//! `bench kafka`: relays a backlog to Kafka. Two references bound the rate: the drain alone and the client alone.

mod latency;
pub(super) mod memory;
mod others;
pub(super) mod raw;
pub(super) mod topic;

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use clap::Args;
use keylane::{Config, Registration, Running};
use keylane_kafka::{KafkaConfig, KafkaSink, Route};
use tokio::time::timeout;

use self::topic::Topic;
use super::{
    Engine, Result, drain,
    handler::HANDLER,
    meter::{Figure, Meter},
    options::{Load, Show, seconds},
    quantile,
    report::Report,
    stage::Stage,
    tally::{Event, Tally},
};

/// The bench fails if a backlog takes longer.
const STALL: Duration = Duration::from_secs(300);

/// The records in memory of `keylane relay`.
const IN_FLIGHT: usize = 16_000;
/// The records per fetch of `keylane relay`.
const BATCH: usize = 2_000;

/// The settings with what `keylane relay` has at least.
fn of_a_relay(config: &Config) -> Config {
    let mut config = config.clone();
    let delivery = &mut config.delivery;
    delivery.max_in_flight = delivery.max_in_flight.max(IN_FLIGHT);
    delivery.batch_size = delivery.batch_size.max(BATCH);
    config
}

/// Options of `bench kafka`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The first brokers, as host:port,host:port.
    #[arg(long, env = "KEYLANE_BENCH_KAFKA", default_value = "127.0.0.1:9092")]
    brokers: String,
    /// Records of the backlog.
    #[arg(long, default_value = "200000")]
    records: NonZeroUsize,
    /// Distinct keys of the records, each of these numbers in turn. They show the cost of the order.
    #[arg(long, value_delimiter = ',', default_value = "10000")]
    keys: Vec<NonZeroUsize>,
    /// Length of each payload, JSON.
    #[arg(long, default_value_t = 200)]
    payload_bytes: usize,
    /// Partitions of the topic, which is created for the bench and deleted.
    #[arg(long, default_value_t = 12)]
    partitions: i32,
    /// Measures no backlog, but the time from commit to consumer at this many events per second.
    #[arg(long)]
    rate: Option<f64>,
    /// Measures no rates, but the resident memory of the relay, beside the queue of the client.
    #[arg(long, conflicts_with = "rate")]
    memory: bool,
    /// Measures no relay, but the rate of another handler while the brokers are away.
    #[arg(long, conflicts_with_all = ["rate", "memory"])]
    others: bool,
    /// How long events arrive, with --rate, or the brokers are away, with --memory.
    #[arg(long, default_value = "20", value_parser = seconds)]
    seconds: Duration,
    #[command(flatten)]
    pub(super) show: Show,
}

/// The subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The library, from the database to Kafka.
    Relay,
    /// The loop written by hand that drains the same records and sends nothing.
    Loop,
    /// The client that sends the same messages without a database.
    Raw,
}

/// Measures each subject in turn, as often as asked.
///
/// # Errors
/// Also if one of them has not done the whole work, or a key is not in order in the topic.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("kafka", E::NAME);
    if let Some(rate) = options.rate {
        latency::run(stage, options, rate, &mut report).await?;
        return Ok(report);
    }
    if options.memory {
        memory::run(stage, options, &mut report).await?;
        return Ok(report);
    }
    if options.others {
        others::run(stage, options, &mut report).await?;
        return Ok(report);
    }
    let meter = Meter::open(&stage.pool).await?;
    let mut turn = vec![Subject::Relay, Subject::Loop, Subject::Raw];
    let runs = options.show.runs.get();
    for run in 1..=runs {
        for keys in &options.keys {
            let bench = Bench { stage, options, meter: &meter, load: options.load(*keys) };
            let mut measured = Vec::new();
            for subject in &turn {
                stage.bar.set_message(format!("run {run} of {runs}: {subject}, {keys} keys"));
                let figures = bench.measure(*subject).await?;
                report.add_all(&format!("{subject}, {keys} keys"), &figures);
                measured.push((*subject, figures));
            }
            compare(&measured, *keys, &mut report);
        }
        turn.rotate_left(1);
    }
    let Options { records, payload_bytes, partitions, .. } = options;
    report.note(format!("{records} records of {payload_bytes} bytes to {partitions} partitions, acks=all"));
    report.note(format!("relay: {IN_FLIGHT} records in memory, {BATCH} per fetch, as `keylane relay` has"));
    report.note("loop: the same drain by hand, to nowhere; raw: an idempotent producer, from nowhere");
    report.note("each topic was read to its end: every record is there, and each key in order");
    Ok(report)
}

/// The ratios of the relay to each reference, and to the slower one.
fn compare(measured: &[(Subject, [Figure; 4])], keys: NonZeroUsize, report: &mut Report) {
    let of = |wanted| measured.iter().find(|(subject, _)| *subject == wanted).map(|(_, figures)| figures);
    let (Some(relay), Some(by_loop), Some(raw)) = (of(Subject::Relay), of(Subject::Loop), of(Subject::Raw))
    else {
        return;
    };
    let slower = if by_loop[0].value < raw[0].value { by_loop } else { raw };
    for (name, reference) in [("slower", slower), ("loop", by_loop), ("raw", raw)] {
        let ratios: Vec<Figure> =
            relay.iter().zip(reference).map(|(ours, theirs)| ours.over(theirs)).collect();
        // The slower reference bounds the rate. Its costs are no bound: a relay does other work.
        let ratios = if name == "slower" { &ratios[..1] } else { &ratios[..] };
        report.add_all(&format!("relay / {name}, {keys} keys"), ratios);
    }
}

impl Options {
    fn load(&self, keys: NonZeroUsize) -> Load {
        Load { keys, payload_bytes: self.payload_bytes }
    }

    /// The sink with its defaults.
    fn sink(&self, topic: &Topic) -> Result<Registration> {
        let sink = KafkaSink::new(KafkaConfig::new(&self.brokers))?.route(Route::to(topic.name()));
        Ok(sink.registration(HANDLER))
    }
}

struct Bench<'a, E: Engine> {
    stage: &'a Stage<E>,
    options: &'a Options,
    meter: &'a Meter<E>,
    load: Load,
}

impl<E: Engine> Bench<'_, E> {
    async fn measure(&self, subject: Subject) -> Result<[Figure; 4]> {
        let records = self.options.records.get();
        let topic = Topic::make(&self.options.brokers, self.options.partitions).await?;
        let tally = self.stage.fill(records, self.load).await?;
        let start = self.meter.start().await?;
        let running = match subject {
            Subject::Relay => Some(self.relay(&topic, &tally).await?),
            Subject::Loop => {
                drain::in_batches::<E>(&self.stage.pool, &tally).await?;
                None
            }
            Subject::Raw => {
                raw::send(&topic, records, self.load).await?;
                None
            }
        };
        let cost = self.meter.stop(start).await?;
        if let Some(running) = running {
            running.shutdown().await;
        }
        match subject {
            Subject::Loop => tally.check()?,
            Subject::Relay | Subject::Raw => topic.check(records).await?,
        }
        let left = self.stage.left().await?;
        if subject == Subject::Relay && left > 0 {
            return Err(format!("{left} records are left in the table").into());
        }
        topic.remove().await?;
        Ok(cost.per_record(records))
    }

    async fn relay(&self, topic: &Topic, tally: &Arc<Tally>) -> Result<Running> {
        let handler = self.options.sink(topic)?;
        let outbox = self.stage.outbox(of_a_relay(&self.stage.config), [handler], tally).await?;
        let running = outbox.start().await?;
        timeout(STALL, tally.all_settled()).await.map_err(|_| format!("not drained after {STALL:?}"))?;
        Ok(running)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "relay",
            Self::Loop => "loop",
            Self::Raw => "raw",
        })
    }
}
