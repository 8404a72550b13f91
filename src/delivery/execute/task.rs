//! Flights that share a task. Flights that end together are reported together.

use std::{mem::replace, sync::Arc, task::Poll};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{context::ExecContext, flight::Flight, run::run, slot::Slot};
use crate::{
    delivery::outcome::{Landed, Report, Run},
    rules::pacing::Pace,
};

/// The most flights in one report, of those that have waited.
const REPORTED_TOGETHER: usize = 32;

/// Flights that have landed and are not reported. Dropping the arrivals reports them, so that every end of the task does.
struct Arrivals<'a> {
    /// Pushed when a flight lands, emptied by each report.
    flights: Vec<Landed>,
    /// The sender for reports. Never changes.
    done: &'a UnboundedSender<Report>,
}

impl Arrivals<'_> {
    fn report(&mut self, pace: Option<Pace>) {
        let flights = std::mem::take(&mut self.flights);
        // The send fails only if the dispatcher is gone; then this task is about to be cancelled.
        let _ = self.done.send(Report { runs: flights, pace });
    }
}

impl Drop for Arrivals<'_> {
    fn drop(&mut self) {
        if !self.flights.is_empty() {
            self.report(None);
        }
    }
}

/// Runs of one task that have not begun. Dropping them reports all their records as untried.
pub(super) struct Together {
    /// Taken one by one, each when its flight begins.
    runs: std::vec::IntoIter<(Run, Option<Slot>)>,
    /// The sender for reports. Never changes.
    done: UnboundedSender<Report>,
}

impl Together {
    pub(super) fn new(runs: Vec<(Run, Option<Slot>)>, done: UnboundedSender<Report>) -> Self {
        Self { runs: runs.into_iter(), done }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        for (Run { entry, lanes }, slot) in self.runs.by_ref() {
            drop(Flight::new(lanes, (entry.number, entry.form.is_transactional()), slot, &self.done));
        }
    }
}

/// Runs all runs of a task concurrently. Each run is polled until it waits, before the next one begins.
pub(super) async fn fly(mut together: Together, context: Arc<ExecContext>) {
    let (began, count) = (Instant::now(), together.runs.len() as u32);
    let done = together.done.clone();
    let mut arrivals = Arrivals { flights: Vec::with_capacity(together.runs.len()), done: &done };
    let waiting = FuturesUnordered::new();
    // A flight that ends at its first poll leaves its place on the heap to the next one.
    let mut place = Box::pin(OptionFuture::from(None));
    for (run, slot) in together.runs.by_ref() {
        place.as_mut().set(Some(one(run, slot, &context, &done)).into());
        match futures::poll!(place.as_mut()) {
            Poll::Ready(landed) => arrivals.flights.extend(landed),
            Poll::Pending => waiting.push(replace(&mut place, Box::pin(None.into()))),
        }
    }
    arrivals.report(Some(Pace { mean: began.elapsed() / count.max(1), waits: !waiting.is_empty() }));
    let mut waiting = waiting.ready_chunks(REPORTED_TOGETHER);
    while let Some(landed) = waiting.next().await {
        arrivals.flights.extend(landed.into_iter().flatten());
        arrivals.report(None);
    }
}

async fn one(
    Run { entry, lanes }: Run,
    slot: Option<Slot>,
    context: &ExecContext,
    done: &UnboundedSender<Report>,
) -> Landed {
    let mut flight = Flight::new(lanes, (entry.number, entry.form.is_transactional()), slot, done);
    run(&mut flight, &entry, context).await;
    flight.land()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{
        delivery::{fixtures, outcome::Outcome},
        handler::{BoxFuture, Call, Context, HandlerError, RecordTypes, Registration},
    };

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_never_polled_gives_its_runs_back() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let context = Arc::new(fixtures::context(&ownership));
        let lanes = fixtures::lanes(&ownership, 1);
        let runs = vec![(Run { entry: fixtures::entry(), lanes }, None)];
        drop(fly(Together::new(runs, done), context));
        let report = reports.try_recv().unwrap();
        assert!(matches!(report.runs[0].lanes[0].items[0].1, Outcome::Untried));
        assert!(report.runs[0].lanes[0].over);
    }

    /// The reports of flights that have landed when a panic ends their task.
    #[tokio::test(start_paused = true)]
    async fn what_has_landed_is_reported_whatever_ends_the_task() {
        let (done, mut reports) = unbounded_channel();
        let lanes = fixtures::lanes(&fixtures::owning_all(), 1);
        let landed = Flight::new(lanes, (0, false), None, &done).land();
        drop(Arrivals { flights: vec![landed], done: &done });
        assert_eq!(reports.try_recv().unwrap().runs.len(), 1);
        drop(Arrivals { flights: Vec::new(), done: &done });
        assert!(reports.try_recv().is_err(), "there is nothing to report");
    }

    /// The first report has the mean time of a flight.
    #[tokio::test]
    async fn flights_that_land_together_are_reported_together() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let context = Arc::new(fixtures::context(&ownership));
        let run = || (Run { entry: fixtures::entry(), lanes: fixtures::lanes(&ownership, 1) }, None);
        let began = Instant::now();
        fly(Together::new(vec![run(), run(), run()], done), context).await;
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
        let run = (Run { entry, lanes: fixtures::lanes(&ownership, 1) }, None);
        fly(Together::new(vec![run], done), context).await;
        let [first, second] = [(); 2].map(|()| reports.try_recv().unwrap());
        assert!(first.runs.is_empty() && first.pace.is_some_and(|pace| pace.waits));
        assert!(matches!(second.runs[0].lanes[0].items[0].1, Outcome::Completed) && second.pace.is_none());
    }
}
