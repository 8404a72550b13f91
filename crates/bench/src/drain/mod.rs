//! `bench drain`: a backlog, from the start of a consumer to its last outcome written.

mod references;
mod subject;

use std::{iter, sync::Arc, time::Duration};

use futures::FutureExt;
use keylane::{Registration, Running};

use self::subject::{Form, Subject};
use super::{
    Result, engine,
    engine::Engine,
    handler::{Count, HANDLER},
    meter::{Figure, Meter},
    options::{self, Load},
    plot::Curve,
    report::Report,
    stage::Stage,
    tally::{self, Event, Tally},
    turns::in_turn,
    watch::{rates, watched},
};

#[cfg(feature = "kafka")]
pub(super) use references::in_batches;
pub(super) use subject::Options;

/// Events per call of the batch handler: as many as the loop written by hand fetches.
const HANDLER_BATCH: usize = 500;

/// Drains with each subject in turn, as many times as `--runs` says.
///
/// # Errors
/// If a statement fails, if a subject has not done all its work, or if several handlers are to be transactional.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    if options.handler_form.transactional() && options.handlers.get() > 1 {
        // All would update the row of a key. After a deadlock a call is repeated, and its records count twice.
        return Err("--handlers is for handlers that are not transactional: give 1, or another form".into());
    }
    let mut report = Report::new("drain", E::NAME);
    let bench = Drain { stage, options, meter: Meter::open(&stage.pool).await? };
    let subjects = options.subjects::<E>();
    let references = subjects.iter().copied().filter(|subject| *subject != Subject::Library);
    let pairs: Vec<_> = references.map(|reference| (Subject::Library, reference)).collect();
    let measure = |subject| bench.measure(subject).boxed();
    in_turn(stage, &options.show, &mut report, subjects, &pairs, measure).await?;
    describe(stage, options, &mut report);
    Ok(report)
}

/// The notes that a reader of the figures needs.
fn describe<E: Engine>(stage: &Stage<E>, options: &Options, report: &mut Report) {
    let Load { keys, payload_bytes } = options.load;
    let records = options.records_of(Subject::Library);
    report.note(format!("{records} records of {payload_bytes} bytes, {keys} keys"));
    let config = options.tuning.applied_to(stage.config.clone()).delivery;
    let (batch, concurrency) = (config.batch_size, config.concurrency);
    report.note(format!(
        "library: batch {batch}, concurrency {concurrency}, handlers: {} {}",
        options.handlers, options.handler_form
    ));
    for subject in options.subjects::<E>() {
        let fewer = options.records_of(subject);
        if fewer < records {
            report.note(format!("{subject}: {fewer} records only, because it is slow"));
        }
    }
}

struct Drain<'a, E: Engine> {
    stage: &'a Stage<E>,
    options: &'a Options,
    meter: Meter<E>,
}

impl<E: Engine> Drain<'_, E> {
    async fn measure(&self, subject: Subject) -> Result<([Figure; 4], Curve)> {
        let records = self.options.records_of(subject);
        let tally = self.fill(records).await?;
        if self.transactional() {
            self.stage.fill_effects(self.options.load).await?;
        }
        let start = self.meter.start().await?;
        let (running, course) = watched(self.work(subject, &tally), &tally, &self.stage.bar).await?;
        let cost = self.meter.stop(start).await?;
        if let Some(running) = running {
            running.shutdown().await;
        }
        self.check(subject, &tally).await?;
        let curve = Curve { label: subject.to_string(), unit: "records/s", points: rates(&course) };
        Ok((cost.per_record(records), curve))
    }

    /// Fills the emptied table: each event is a record per handler.
    async fn fill(&self, records: usize) -> Result<Arc<Tally>> {
        let Options { handlers, load, .. } = *self.options;
        let unused = Arc::new(Tally::new(0, 0..=0));
        let others = self.names().skip(1).map(|name| Registration::typed(name, Count(Arc::clone(&unused))));
        self.stage.fill_for(others, records / handlers, |number| Event::numbered(number, load)).await?;
        self.stage.tally(records).await
    }

    /// The names of the library's handlers.
    fn names(&self) -> impl Iterator<Item = String> {
        let others = (1..self.options.handlers.get()).map(|number| format!("{HANDLER}-{number}"));
        iter::once(HANDLER.to_owned()).chain(others)
    }

    fn transactional(&self) -> bool {
        self.options.handler_form.transactional()
    }

    /// Drains to the end. The library goes on until it is shut down.
    async fn work(&self, subject: Subject, tally: &Arc<Tally>) -> Result<Option<Running>> {
        let pool = &self.stage.pool;
        match subject {
            Subject::Library => return self.library(tally).await.map(Some),
            Subject::Loop if self.transactional() => references::in_transactions::<E>(pool, tally).await?,
            Subject::Loop => references::in_batches::<E>(pool, tally).await?,
            Subject::Best => references::overlapping::<E>(pool, tally).await?,
            Subject::Naive(connections) => references::singly::<E>(pool, tally, connections).await?,
        }
        Ok(None)
    }

    async fn library(&self, tally: &Arc<Tally>) -> Result<Running> {
        let registration = |name: String| {
            let count = Count(Arc::clone(tally));
            match self.options.handler_form {
                Form::Single => Registration::typed(name, count),
                Form::Batch => Registration::mixed_batch(name, HANDLER_BATCH, count),
                Form::Transactional => Registration::transactional::<E, _>(name, count),
                Form::TransactionalBatch => {
                    Registration::transactional_mixed_batch::<E, _>(name, HANDLER_BATCH, count)
                }
            }
        };
        let config = self.options.tuning.applied_to(self.stage.config.clone());
        let running = self.stage.outbox(config, self.names().map(registration), tally).await?.start().await?;
        tally.all_handled().await;
        match self.transactional() {
            false => tally.all_settled().await,
            // No signal tells when the transactions of the handlers have committed.
            true => {
                while self.stage.left().await? > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        Ok(running)
    }

    /// Each record handled once, its effect written once, and nothing left.
    async fn check(&self, subject: Subject, tally: &Tally) -> Result<()> {
        let blame = |problem: String| format!("{subject} has not done the work: {problem}");
        tally.check().map_err(|problem| blame(problem.to_string()))?;
        let left = self.stage.left().await?;
        if left > 0 {
            return Err(blame(format!("{left} records are left in the table")).into());
        }
        let effects = self.stage.effects().await?;
        if self.transactional() && effects != tally.records() as i64 {
            return Err(blame(format!("{effects} effects of {} records", tally.records())).into());
        }
        Ok(())
    }
}
