//! The runs of one task. Runs that end together are reported together.
//!
//! Every end of a task leads to reports of all its runs: their last records, a lapsed lease, a panic around a
//! flight, a cancellation before the first poll. A report has the known outcomes, and lists all other records
//! as untried or lost. No outcome is lost, and no lane stays marked as running.

use std::{
    mem::{replace, take},
    sync::Arc,
    task::Poll,
};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{context::ExecContext, flight::Flight, run::run, slot::Slot};
use crate::{
    delivery::outcome::{Report, Run},
    rules::pacing::Pace,
    wake::offer_woken_task,
};

/// The most runs in one report, of those that have waited.
const REPORTED_TOGETHER: usize = 32;

/// The runs of one task. Dropping them reports all that were not reported.
pub(super) struct Together {
    /// Runs are pushed before the task starts. Each run stays in its place until it is reported: copies of a
    /// run cost as much as a short handler.
    runs: Vec<Run>,
    /// The fence rows of the transactional runs, in the order of those. Taken one by one, each when its flight
    /// begins.
    slots: Vec<Slot>,
    /// The sender for reports. Never changes.
    done: UnboundedSender<Report>,
}

impl Together {
    pub(super) fn new(done: UnboundedSender<Report>) -> Self {
        Self { runs: Vec::new(), slots: Vec::new(), done }
    }

    /// Adds a run, with a fence row if it is transactional. `most` runs are expected in all.
    pub(super) fn push(&mut self, run: Run, slot: Option<Slot>, most: usize) {
        if self.runs.is_empty() {
            self.runs.reserve_exact(most);
        }
        self.runs.push(run);
        self.slots.extend(slot);
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // Frees the fence rows before the report, because the report lets the next transactional runs start.
        self.slots.clear();
        let mut runs = take(&mut self.runs);
        runs.retain(|run| run.goes_on);
        if !runs.is_empty() {
            runs.iter_mut().for_each(Run::end);
            report(&self.done, runs, None);
        }
    }
}

fn report(done: &UnboundedSender<Report>, runs: Vec<Run>, pace: Option<Pace>) {
    // The send fails only if the dispatcher is gone; then this task is about to be cancelled.
    let _ = done.send(Report { runs, pace });
}

/// Runs all runs of a task concurrently. Each run is polled until it waits, before the next one begins.
pub(super) async fn fly(mut together: Together, context: Arc<ExecContext>) {
    let (began, count) = (Instant::now(), together.len() as u32);
    let Together { runs, slots, done } = &mut together;
    let mut slots = take(slots).into_iter();
    let mut landed = Vec::with_capacity(runs.len());
    let waiting = FuturesUnordered::new();
    // A flight that ends at its first poll leaves its place on the heap to the next one.
    let mut place = Box::pin(OptionFuture::from(None));
    for run in runs.iter_mut() {
        let slot = if run.entry.form.is_transactional() { slots.next() } else { None };
        place.as_mut().set(Some(one(run, slot, &context, done)).into());
        match futures::poll!(place.as_mut()) {
            Poll::Ready(run) => landed.extend(run),
            Poll::Pending => waiting.push(replace(&mut place, Box::pin(None.into()))),
        }
    }
    let pace = Some(Pace { mean: began.elapsed() / count.max(1), waits: !waiting.is_empty() });
    if waiting.is_empty() {
        drop((waiting, place));
        runs.iter_mut().for_each(Run::end);
        return report(done, take(runs), pace);
    }
    report(done, landed.into_iter().map(Run::take).collect(), pace);
    let mut waiting = waiting.ready_chunks(REPORTED_TOGETHER);
    while !waiting.get_ref().is_empty() {
        // Flights that are ready again go on at once, and their calls may block this thread.
        offer_woken_task();
        let landed = waiting.next().await.unwrap_or_default();
        report(done, landed.into_iter().flatten().map(Run::take).collect(), None);
    }
}

async fn one<'a>(
    of: &'a mut Run,
    slot: Option<Slot>,
    context: &'a ExecContext,
    done: &'a UnboundedSender<Report>,
) -> &'a mut Run {
    let mut flight = Flight::new(of, slot, done);
    let entry = flight.entry();
    run(&mut flight, entry, context).await;
    drop(flight);
    of
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{
        delivery::{fixtures, outcome::Outcome},
        handler::{BoxFuture, Call, Context, HandlerError, RecordTypes, Registration},
    };

    const LIMIT: Duration = Duration::from_secs(120);

    /// Runs in a task that reports to `done`.
    fn together(done: &UnboundedSender<Report>, runs: impl IntoIterator<Item = Run>) -> Together {
        let mut together = Together::new(done.clone());
        runs.into_iter().for_each(|run| together.push(run, None, 1));
        together
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_never_polled_gives_its_runs_back() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let context = Arc::new(fixtures::context(&ownership));
        drop(fly(together(&done, [fixtures::run(&ownership, 1)]), context));
        let report = reports.try_recv().unwrap();
        assert!(matches!(report.runs[0].lanes[0].items[0].1, Outcome::Untried));
        assert!(report.runs[0].lanes[0].over && !report.runs[0].goes_on);
    }

    /// A task ends while one run waits, another has landed and was reported, and a third has landed since.
    #[tokio::test(start_paused = true)]
    async fn what_was_not_reported_is_reported_whatever_ends_the_task() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let [waiting, mut landed, mut reported] = [3, 2, 1].map(|count| fixtures::run(&ownership, count));
        landed.lanes[0].end(Outcome::Completed);
        reported.take();
        drop(together(&done, [waiting, reported, landed]));
        let report = reports.try_recv().unwrap();
        assert!(report.runs.iter().all(|run| !run.goes_on));
        let counts: Vec<usize> = report.runs.iter().map(|run| run.lanes[0].items.len()).collect();
        assert_eq!(counts, [3, 2]);
        assert!(matches!(report.runs[1].lanes[0].items[0].1, Outcome::Completed));
        drop(together(&done, []));
        assert!(reports.try_recv().is_err(), "there is nothing to report");
    }

    /// The first report has the mean time of a flight.
    #[tokio::test]
    async fn flights_that_land_together_are_reported_together() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let context = Arc::new(fixtures::context(&ownership));
        let runs = [(); 3].map(|()| fixtures::run(&ownership, 1));
        let began = Instant::now();
        fly(together(&done, runs), context).await;
        let took = began.elapsed();
        let first = reports.try_recv().unwrap();
        assert_eq!(first.runs.len(), 3);
        assert!(
            first.pace.is_some_and(|pace| !pace.mean.is_zero() && pace.mean * 3 <= took && !pace.waits),
            "{:?}",
            first.pace
        );
        assert!(first.runs.iter().all(|landed| matches!(landed.lanes[0].items[0].1, Outcome::Completed)));
        assert!(reports.try_recv().is_err());
    }

    /// A handler that waits.
    struct Waits;

    impl Call for Waits {
        fn call<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_waits_lands_later_and_its_wait_is_reported() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let context = Arc::new(fixtures::context(&ownership));
        let registry = fixtures::registry_of(Registration::single("h", RecordTypes::all(), Waits));
        let entry = Arc::clone(registry.entry("h", "t").unwrap());
        let run = Run::new(entry, fixtures::lanes(&ownership, 1));
        fly(together(&done, [run]), context).await;
        let [first, second] = [(); 2].map(|()| reports.try_recv().unwrap());
        assert!(first.runs.is_empty() && first.pace.is_some_and(|pace| pace.waits));
        assert!(matches!(second.runs[0].lanes[0].items[0].1, Outcome::Completed) && second.pace.is_none());
    }

    /// A handler that waits, but is ready again after the first report, and then blocks its thread until it is told
    /// to go on.
    struct Blocks(Mutex<mpsc::Receiver<()>>);

    impl Call for Blocks {
        fn call<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(async {
                // A flight polls its call twice before the report.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                self.0.lock().unwrap().recv_timeout(LIMIT).map_err(HandlerError::new)
            })
        }
    }

    /// The handler is told once the first report has been read.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_report_is_read_although_a_call_after_it_blocks_the_thread() {
        let ((done, mut reports), (tells, told)) = (unbounded_channel(), mpsc::channel());
        let registry =
            fixtures::registry_of(Registration::single("h", RecordTypes::all(), Blocks(told.into())));
        let (entry, ownership) = (Arc::clone(registry.entry("h", "t").unwrap()), fixtures::owning_all());
        let (begins, begun) = tokio::sync::oneshot::channel();
        let reads = tokio::spawn(async move {
            begins.send(()).unwrap();
            reports.recv().await.unwrap();
            tells.send(()).unwrap();
            reports.recv().await.unwrap()
        });
        begun.await.unwrap();
        let run = Run::new(entry, fixtures::lanes(&ownership, 1));
        tokio::spawn(fly(together(&done, [run]), Arc::new(fixtures::context(&ownership)))).await.unwrap();
        let last = tokio::time::timeout(LIMIT, reads).await.unwrap().unwrap();
        assert!(matches!(last.runs[0].lanes[0].items[0].1, Outcome::Completed));
    }
}
