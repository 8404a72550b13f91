//! From the return of a commit to a consumer of the topic, with events that arrive steadily.

use std::{sync::Arc, time::Duration};

use keylane::Outbox;
use rdkafka::{
    Message as _,
    consumer::{Consumer, StreamConsumer},
};

use super::{Engine, Figure, Options, Report, Result, Stage, quantile::quantile, topic::Topic};
use crate::arrivals::Arrivals;

/// Arrivals that do not count, because connections are opened, topics learned and statements prepared.
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) async fn run<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    rate: f64,
    report: &mut Report,
) -> Result<()> {
    let runs = options.show.runs.get();
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}: {rate}/s"));
        let figures = measure(stage, options, rate).await?;
        report.add_all(&format!("consumer at {rate}/s"), &figures);
    }
    report.note("from the return of the commit to the consumer's next line, in one process");
    Ok(())
}

async fn measure<E: Engine>(stage: &Stage<E>, options: &Options, rate: f64) -> Result<[Figure; 4]> {
    stage.empty().await?;
    let topic = Topic::make(&options.brokers, options.partitions).await?;
    let arriving = |time: Duration| (rate * time.as_secs_f64()).ceil() as usize;
    let (warm_up, counted) = (arriving(WARM_UP), arriving(options.seconds).max(2));
    let arrivals = Arrivals::new(warm_up + counted, options.load(options.keys[0]));
    let outbox: Outbox<E> = Outbox::builder(stage.pool.clone())
        .config(stage.config.clone())
        .handler(options.sink(&topic)?)
        .build()
        .await?;
    let consumer = consume(&topic, Arc::clone(&arrivals))?;
    let running = outbox.start().await?;
    Arc::clone(&arrivals).send(vec![outbox], rate).await?;
    arrivals.all_entered().await?;
    running.shutdown().await;
    consumer.abort();
    topic.remove().await?;
    let counted = arrivals.entries().filter(|entry| entry.number >= warm_up);
    let mut millis: Vec<f64> = counted.map(|entry| entry.waited.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    Ok([("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)].map(|(name, share)| Figure {
        name,
        unit: "ms",
        value: quantile(&millis, share),
    }))
}

/// Notes the messages of the topic until it is aborted.
fn consume(topic: &Topic, arrivals: Arc<Arrivals>) -> Result<tokio::task::JoinHandle<()>> {
    let mut client = topic.client();
    client.set("group.id", topic.name()).set("enable.auto.commit", "false");
    let consumer: StreamConsumer = client.create()?;
    consumer.assign(&topic.places()?)?;
    Ok(tokio::spawn(async move {
        loop {
            match consumer.recv().await {
                Ok(message) => arrivals.receive(message.payload().unwrap_or_default()),
                // The final count finds a missing message.
                Err(error) => tracing::debug!(%error, "the consumer has met an error"),
            }
        }
    }))
}
