//! `bench kafka --memory`: what `keylane relay` has resident, and how much of it is the queue of its client.

use std::{env, fs, path::PathBuf, process::Stdio, time::Duration};

use clap::Args;
use tokio::{process::Command, time::Instant};

use super::{Engine, Figure, IN_FLIGHT, Load, Options, Report, Result, STALL, Stage, raw, topic::Topic};
use crate::{
    PREFIX,
    handler::HANDLER,
    memory::{Resident, in_a_process},
    pile::{Keys, Pile, Stored},
    resident,
};

/// How often the bench looks whether the relay has done its work.
const LOOK: Duration = Duration::from_millis(200);
const ANY_RECORD: &str = "SELECT COUNT(*) FROM (SELECT id FROM keylane_bench_record LIMIT 1) AS any_record";

/// The load of the process that only fills the queue of a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct Queue {
    #[command(flatten)]
    load: Load,
}

/// Lets a relay do its work, and another one wait for its brokers, as often as asked.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options, report: &mut Report) -> Result<()> {
    let runs = options.show.runs.get();
    let Load { keys, payload_bytes } = options.load(options.keys[0]);
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}"));
        let topic = Topic::make(&options.brokers, options.partitions).await?;
        let relay = relayed(stage, options, &topic).await?;
        topic.check(options.records.get()).await?;
        let away = waited(stage, options, &topic).await?;
        topic.remove().await?;
        let words = ["--keys", &keys.to_string(), "--payload-bytes", &payload_bytes.to_string()];
        let queue = in_a_process(stage, &[&["queue"], &words[..]].concat()).await?;
        add(&queue, [("relay", relay), ("broker away", away)], report);
    }
    let Options { records, seconds, .. } = options;
    report.note(format!("{records} records of {payload_bytes} bytes; away: nobody listens for {seconds:?}"));
    report.note(format!("the queue: a raw client that was given {IN_FLIGHT} messages and no broker"));
    report.note("most that was resident, program included, of processes `keylane relay`");
    Ok(())
}

/// The most that a relay had resident when it has relayed everything.
async fn relayed<E: Engine>(stage: &Stage<E>, options: &Options, topic: &Topic) -> Result<Option<f64>> {
    let mut relay = Relay::start(stage, options, &options.brokers, topic).await?;
    let (mut conn, since) = (E::connect(&stage.pool).await?, Instant::now());
    while E::number(&mut conn, ANY_RECORD).await? > 0 {
        if since.elapsed() > STALL {
            return Err(format!("not drained after {STALL:?}").into());
        }
        tokio::time::sleep(LOOK).await;
        relay.lives()?;
    }
    Ok(relay.peak())
}

/// The most that a relay had resident while nobody listened.
async fn waited<E: Engine>(stage: &Stage<E>, options: &Options, topic: &Topic) -> Result<Option<f64>> {
    let mut relay = Relay::start(stage, options, raw::NOBODY, topic).await?;
    tokio::time::sleep(options.seconds).await;
    relay.lives()?;
    Ok(relay.peak())
}

/// `keylane relay` as a process of its own, with its defaults.
struct Relay {
    process: tokio::process::Child,
    settings: PathBuf,
}

impl Relay {
    /// Begins to relay a backlog in new tables.
    async fn start<E: Engine>(
        stage: &Stage<E>,
        options: &Options,
        brokers: &str,
        topic: &Topic,
    ) -> Result<Self> {
        let pile = Pile::new(stage, options.load(options.keys[0])).await?;
        pile.add(options.records.get(), Keys::All, Stored::Pending).await?;
        let settings = env::temp_dir().join(format!("keylane-bench-{}.toml", uuid::Uuid::now_v7()));
        let text = format!(
            "table_prefix = '{PREFIX}'\n[relay]\nhandler = '{HANDLER}'\n[relay.kafka]\n\
             brokers = '{brokers}'\n[[relay.route]]\nto = '{}'\n",
            topic.name()
        );
        fs::write(&settings, text)?;
        let mut command = Command::new(env::current_exe()?);
        // In the environment: a list of processes shows arguments to everyone.
        command.env("DATABASE_URL", E::url(&stage.pool)).env("RUST_LOG", "off");
        command.arg("relay").arg("--config").arg(&settings).stdout(Stdio::null()).kill_on_drop(true);
        Ok(Self { process: command.spawn()?, settings })
    }

    /// # Errors
    /// If it has ended.
    fn lives(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the relay has ended with {status}").into()),
        }
    }

    fn peak(&self) -> Option<f64> {
        resident::peak_of(self.process.id()?)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Nobody misses a file that cannot be removed.
        let _ = fs::remove_file(&self.settings);
    }
}

/// What each has had resident, and how much of it is not the client's queue.
fn add(queue: &Resident, subjects: [(&str, Option<f64>); 2], report: &mut Report) {
    let (Some(before), Some(full)) = (queue.before, queue.peak) else { return };
    let figure = |name, value| Figure { name, unit: "MiB", value: Some(value) };
    report.add_all("queue", &[figure("resident", full - before)]);
    for (subject, peak) in subjects {
        let Some(peak) = peak else { continue };
        let beside = peak - (full - before);
        report.add_all(subject, &[figure("most resident", peak), figure("beside the queue", beside)]);
    }
}

/// Fills the queue of a client in this process and prints what that needed.
///
/// # Errors
/// If the client refuses a message.
pub(crate) async fn queue(queue: &Queue) -> Result<()> {
    let client = raw::without_broker()?;
    // The queue is what comes on top of the client itself.
    let before = resident::now();
    raw::fill(&client, IN_FLIGHT, queue.load).await?;
    println!("{}", serde_json::to_string(&Resident { before, peak: resident::peak() })?);
    Ok(())
}
