//! `bench kafka --memory`: what is resident while a backlog is relayed, and how much of it is the client's queue.

use std::{num::NonZeroUsize, time::Duration};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use keylane::Outbox;
use keylane_kafka::{KafkaConfig, KafkaSink, Route};
use tokio::time::timeout;

use super::{Engine, Figure, IN_FLIGHT, Load, Options, Report, Result, STALL, Stage, raw, topic::Topic};
use crate::{
    handler::HANDLER,
    memory::{Resident, in_a_process},
    options::seconds,
    pile::{Keys, Pile, Stored},
    resident,
};

/// What a process does.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// Relays the backlog.
    Relay,
    /// Tries to, but nobody takes it.
    Away,
    /// Only fills the queue of the client.
    Queue,
}

/// What a process of the bench is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Process {
    #[arg(long)]
    subject: Subject,
    #[arg(long)]
    brokers: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    records: NonZeroUsize,
    #[command(flatten)]
    load: Load,
    #[arg(long, value_parser = seconds)]
    seconds: Duration,
    /// The settings of the outbox, JSON.
    #[arg(long)]
    settings: String,
}

/// Lets each subject do its part, as often as asked.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options, report: &mut Report) -> Result<()> {
    let load = options.load(options.keys[0]);
    let runs = options.show.runs.get();
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}"));
        let topic = Topic::make(&options.brokers, options.partitions).await?;
        let pile = Pile::new(stage, load).await?;
        pile.add(options.records.get(), Keys::All, Stored::Pending).await?;
        let relay = part(stage, options, "relay", &options.brokers, &topic).await?;
        topic.check(options.records.get()).await?;
        pile.add(options.records.get(), Keys::All, Stored::Pending).await?;
        let away = part(stage, options, "away", raw::NOBODY, &topic).await?;
        let queue = part(stage, options, "queue", raw::NOBODY, &topic).await?;
        topic.remove().await?;
        add(&queue, [("relay", &relay), ("broker away", &away)], report);
    }
    let Options { records, payload_bytes, seconds, .. } = options;
    report.note(format!("{records} records of {payload_bytes} bytes; away: nobody listens for {seconds:?}"));
    report.note(format!("the queue: a raw client that was given {IN_FLIGHT} messages and no broker"));
    report.note("most that was resident, program included, each in a process of its own");
    Ok(())
}

async fn part<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    subject: &str,
    brokers: &str,
    topic: &Topic,
) -> Result<Resident> {
    let Load { keys, payload_bytes } = options.load(options.keys[0]);
    let arguments = [
        ("--subject", subject),
        ("--brokers", brokers),
        ("--topic", topic.name()),
        ("--records", &options.records.to_string()),
        ("--keys", &keys.to_string()),
        ("--payload-bytes", &payload_bytes.to_string()),
        ("--seconds", &options.seconds.as_secs_f64().to_string()),
        ("--settings", &serde_json::to_string(&stage.config)?),
    ];
    let arguments = arguments.iter().flat_map(|(name, value)| [*name, *value]);
    in_a_process(stage, &["relay"].into_iter().chain(arguments).collect::<Vec<_>>()).await
}

/// What each has had resident, and how much of it is not the client's queue.
fn add(queue: &Resident, subjects: [(&str, &Resident); 2], report: &mut Report) {
    let (Some(before), Some(full)) = (queue.before, queue.peak) else { return };
    let figure = |name, value| Figure { name, unit: "MiB", value: Some(value) };
    report.add_all("queue", &[figure("resident", full - before)]);
    for (subject, resident) in subjects {
        let Some(peak) = resident.peak else { continue };
        let beside = peak - (full - before);
        report.add_all(subject, &[figure("most resident", peak), figure("beside the queue", beside)]);
    }
}

/// Does its part in this process and prints what that needed.
///
/// # Errors
/// Also if the work was not done.
pub(crate) async fn process<E: Engine>(stage: &Stage<E>, process: &Process) -> Result<()> {
    // The bar is that of the process which waits for this one.
    let stage = Stage { bar: ProgressBar::hidden(), ..stage.clone() };
    let mut before = resident::now();
    match process.subject {
        Subject::Queue => {
            let client = raw::without_broker()?;
            // The queue is what comes on top of the client itself.
            before = resident::now();
            raw::fill(&client, IN_FLIGHT, process.load).await?;
        }
        Subject::Relay | Subject::Away => relay(&stage, process).await?,
    }
    println!("{}", serde_json::to_string(&Resident { before, peak: resident::peak() })?);
    Ok(())
}

async fn relay<E: Engine>(stage: &Stage<E>, process: &Process) -> Result<()> {
    let tally = stage.tally(process.records.get()).await?;
    let sink = KafkaSink::new(KafkaConfig::new(&process.brokers))?.route(Route::to(&process.topic));
    let mut config: keylane::Config = serde_json::from_str(&process.settings)?;
    config.delivery.max_in_flight = config.delivery.max_in_flight.max(IN_FLIGHT);
    let outbox: Outbox<E> = stage.outbox(config, sink.registration(HANDLER), &tally).await?;
    let running = outbox.start().await?;
    match process.subject {
        Subject::Away => tokio::time::sleep(process.seconds).await,
        _ => timeout(STALL, tally.all_settled()).await.map_err(|_| format!("not drained after {STALL:?}"))?,
    }
    running.shutdown().await;
    Ok(())
}
