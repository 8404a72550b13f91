//! `bench schedule`: what the outbox adds to a business transaction, beside the same inserts by hand.

mod producer;
mod subject;

use std::{sync::Arc, time::Duration};

use keylane::{Outbox, Registration};
use tokio::time::Instant;

use self::{
    producer::{Producer, write},
    subject::{Setting, Writer},
};
use super::{
    Result, engine,
    engine::{Engine, Session},
    handler::{Count, HANDLER},
    meter::{Cost, Figure, Meter},
    options,
    plot::Curve,
    report::Report,
    stage::Stage,
    tally::{self, Tally},
};

pub(super) use subject::Options;

/// The writers take turns as often as this, so that noise hits all alike.
const SLICE: Duration = Duration::from_millis(500);

/// Writes with each writer in turn, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, or if the writers have not all written the same.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("schedule", E::NAME);
    let bench = Schedule { stage, options, meter: Meter::open(&stage.pool).await? };
    let runs = options.show.runs.get();
    for run in 1..=runs {
        for setting in Setting::all::<E>() {
            stage.bar.set_message(format!("run {run} of {runs}: {setting}"));
            let written = bench.measure(setting).await?;
            compare(setting, &written, &mut report);
        }
    }
    let (keys, bytes) = (options.load.keys, options.load.payload_bytes);
    report.note(format!("payloads and business rows of {bytes} bytes, {keys} keys, nobody delivers"));
    if options.relaxed {
        report.note(match E::session(Session::Relaxed) == E::session(Session::Plain) {
            true => "--relaxed means nothing on this database",
            false => "relaxed: no commit waits for the disk",
        });
    }
    Ok(report)
}

/// What one writer has done in a run.
struct Written {
    writer: Writer,
    transactions: usize,
    cost: Cost,
    /// Transactions per second, by the seconds since the start.
    rates: Vec<(f64, f64)>,
}

impl Written {
    fn figures(&self, setting: Setting) -> [Figure; 4] {
        let mut figures = self.cost.per_record(self.transactions * setting.rows());
        if let Setting::Single { .. } = setting {
            let units = ["transactions/s", "us/transaction", "us/transaction", "bytes/transaction"];
            figures.iter_mut().zip(units).for_each(|(figure, unit)| figure.unit = unit);
        }
        figures
    }
}

/// The figures of one run in one setting, and the ratios of each writer to the writers that do less.
fn compare(setting: Setting, written: &[Written], report: &mut Report) {
    for (at, more) in written.iter().enumerate() {
        let figures = more.figures(setting);
        report.add_all(&format!("{}, {setting}", more.writer), &figures);
        let label = format!("{}, {setting}", more.writer);
        report.curve(Curve { label, unit: "transactions/s", points: more.rates.clone() });
        for less in &written[at + 1..] {
            let ratios = figures.iter().zip(less.figures(setting)).map(|(more, less)| more.over(&less));
            let subject = format!("{} / {}, {setting}", more.writer, less.writer);
            report.add_all(&subject, &ratios.collect::<Vec<_>>());
        }
    }
}

struct Schedule<'a, E: Engine> {
    stage: &'a Stage<E>,
    options: &'a Options,
    meter: Meter<E>,
}

impl<E: Engine> Schedule<'_, E> {
    /// Runs one slice of each writer after another. The next round has the opposite order.
    async fn measure(&self, setting: Setting) -> Result<Vec<Written>> {
        self.empty().await?;
        let mut producers = self.producers(setting).await?;
        let rounds = (self.options.seconds.as_secs_f64() / SLICE.as_secs_f64()).round().max(1.0) as u32;
        let slice = self.options.seconds / rounds;
        let mut written: Vec<Written> = setting
            .writers()
            .iter()
            .map(|writer| Written {
                writer: *writer,
                transactions: 0,
                cost: Cost::default(),
                rates: Vec::new(),
            })
            .collect();
        let started = Instant::now();
        self.stage.bar.set_length(rounds.into());
        for round in 0..rounds {
            for writer in &mut written {
                let start = self.meter.start().await?;
                let transactions = write(&mut producers, writer.writer, setting, slice).await?;
                let cost = self.meter.stop(start).await?;
                writer.transactions += transactions;
                writer.cost += cost;
                writer.rates.push((started.elapsed().as_secs_f64(), cost.rate(transactions)));
            }
            written.reverse();
            self.stage.bar.set_position(u64::from(round) + 1);
        }
        written.sort_by_key(|one| setting.writers().iter().position(|writer| *writer == one.writer));
        self.check(setting, &written).await?;
        Ok(written)
    }

    async fn empty(&self) -> Result<()> {
        self.stage.empty().await?;
        let mut conn = E::connect(&self.stage.pool).await?;
        E::execute(&mut conn, "DROP TABLE IF EXISTS keylane_bench_business").await?;
        E::execute(&mut conn, E::CREATE_BUSINESS).await
    }

    async fn producers(&self, setting: Setting) -> Result<Vec<Producer<E>>> {
        let Stage { pool, config, .. } = self.stage;
        let session = if self.options.relaxed { Session::Relaxed } else { Session::Plain };
        let handler = Registration::typed(HANDLER, Count(Arc::new(Tally::new(0, 0..=0))));
        let outbox: Outbox<E> =
            Outbox::builder(pool.clone()).config(config.clone()).handler(handler).build().await?;
        let mut producers = Vec::new();
        for number in 0..setting.connections() {
            let mut conn = E::connect(pool).await?;
            E::execute(&mut conn, E::session(session)).await?;
            producers.push(Producer { conn, outbox: outbox.clone(), load: self.options.load, number });
        }
        Ok(producers)
    }

    /// Checks that there are as many rows as commits, and that all records are alike.
    async fn check(&self, setting: Setting, written: &[Written]) -> Result<()> {
        const KINDS: &str = "SELECT COUNT(*) FROM (SELECT DISTINCT handler, record_type, content_type, headers, \
             status, attempts, next_attempt_at, completed_at FROM keylane_bench_record) AS kinds";
        let rows = |of: fn(&Written) -> bool| {
            let transactions: usize = written.iter().filter(|one| of(one)).map(|one| one.transactions).sum();
            transactions * setting.rows()
        };
        let business = if let Setting::Single { .. } = setting { rows(|_| true) } else { 0 };
        let expected = [business, rows(|one| one.writer != Writer::Business), 1];
        let mut conn = E::connect(&self.stage.pool).await?;
        let found = [
            E::number(&mut conn, "SELECT COUNT(*) FROM keylane_bench_business").await?,
            E::number(&mut conn, "SELECT COUNT(*) FROM keylane_bench_record").await?,
            E::number(&mut conn, KINDS).await?,
        ];
        match expected.map(|count| count as i64) == found {
            true => Ok(()),
            false => Err(format!(
                "business rows, records and kinds of records are {found:?} instead of {expected:?}"
            )
            .into()),
        }
    }
}
