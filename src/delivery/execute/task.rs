//! A task: takes runs one after another, and flies those that wait until they end.

use std::{future::poll_fn, mem::replace, sync::Arc, task::Poll};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{
    flight::Flight,
    pilot::{Pilot, Share},
    run::run,
    runs::Taken,
};
use crate::{
    rules::pacing::Pace,
    wake::{offer_woken_task, unhindered},
};

/// The most runs in one report, of those that have waited.
const REPORTED_TOGETHER: usize = 32;

/// Flies the runs that no other pilot has taken, concurrently. Each is polled until it waits, before the next one
/// begins. Those that end together are reported together.
pub(super) async fn fly(pilot: Arc<Pilot>) {
    unhindered(fly_all(&pilot)).await;
}

async fn fly_all(pilot: &Pilot) {
    let waiting = pass(pilot).await;
    let mut waiting = waiting.ready_chunks(REPORTED_TOGETHER);
    while !waiting.get_ref().is_empty() {
        // Flights that are ready again go on at once, and their calls may block this thread.
        offer_woken_task();
        let landed = poll_fn(|context| {
            pilot.busy(Instant::now());
            let landed = waiting.poll_next_unpin(context);
            pilot.idle();
            landed
        });
        let landed = landed.await.unwrap_or_default().into_iter().flatten();
        let runs: Vec<_> = landed.filter_map(Taken::land).collect();
        if !runs.is_empty() {
            pilot.runs.report(runs, None);
        }
    }
}

/// Takes one run after another. Returns those that wait.
async fn pass(pilot: &Pilot) -> FuturesUnordered<Share> {
    let mut pass = Pass::begin(pilot);
    let waiting = FuturesUnordered::from_iter(pilot.shares());
    // Given from flight to flight: a clone per run would be counted up and down.
    let mut spare = None;
    // A flight that ends at its first poll leaves its place on the heap to the next one.
    let mut place = Box::pin(OptionFuture::from(None));
    while let Some(at) = pass.take_next() {
        let runs = spare.take().unwrap_or_else(|| Arc::clone(&pilot.runs));
        place.as_mut().set(Some(one(Taken::new(runs, at))).into());
        match futures::poll!(place.as_mut()) {
            Poll::Ready(taken) => spare = taken.and_then(Taken::leave),
            Poll::Pending => {
                let waits = replace(&mut place, Box::pin(None.into()));
                waiting.push(pilot.share(waits));
                pass.waits = true;
            }
        }
    }
    waiting
}

/// Flies a run that was taken, to its end.
pub(super) async fn one(taken: Taken) -> Taken {
    if let Some((runs, at)) = taken.place()
        && let Some((mut of, slot)) = runs.lock(at)
    {
        let mut flight = Flight::new(&mut of, slot, &runs.done);
        let entry = flight.entry();
        // A flight that waits beside others is woken by itself.
        unhindered(run(&mut flight, entry, &runs.context)).await;
    }
    taken
}

/// The way of a pilot through the runs. It is over when it is dropped, also by a panic.
struct Pass<'a> {
    /// Never changes.
    pilot: &'a Pilot,
    /// Never changes.
    began: Instant,
    /// The number of runs that the pilot has taken. Raised by `take_next`.
    taken: u32,
    /// Whether one of them waits. Set by `pass`.
    waits: bool,
}

impl<'a> Pass<'a> {
    fn begin(pilot: &'a Pilot) -> Self {
        let began = Instant::now();
        pilot.busy(began);
        Self { pilot, began, taken: 0, waits: false }
    }

    fn take_next(&mut self) -> Option<usize> {
        let at = self.pilot.runs.take_next()?;
        self.taken += 1;
        Some(at)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mean = self.began.elapsed().checked_div(self.taken);
        self.pilot.runs.end(mean.map(|mean| Pace { mean, waits: self.waits }));
        self.pilot.idle();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use tokio::sync::{
        Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    };

    use super::{super::runs::Runs, *};
    use crate::{
        delivery::{
            fixtures,
            outcome::{Outcome, Report, Run},
        },
        handler::{BoxFuture, Call, Context, HandlerError, RecordTypes, Registration},
        ownership::Ownership,
    };

    const LIMIT: Duration = Duration::from_secs(120);

    /// The pilot of these runs. It reports to `done`.
    fn pilot(
        done: &UnboundedSender<Report>,
        ownership: &Ownership,
        of: impl IntoIterator<Item = Run>,
    ) -> Arc<Pilot> {
        let mut runs = Runs::new(Arc::new(fixtures::context(ownership)), done.clone());
        of.into_iter().for_each(|run| runs.push(run, None, 1));
        Arc::new(Pilot::new(Arc::new(runs)))
    }

    /// A run of one record, whose handler makes this call.
    fn run_of(call: impl Call + 'static, ownership: &Ownership) -> Run {
        let registry = fixtures::registry_of(Registration::single("h", RecordTypes::all(), call));
        Run::new(Arc::clone(registry.entry("h", "t").unwrap()), fixtures::lanes(ownership, 1))
    }

    fn is_completed(run: &Run) -> bool {
        !run.goes_on && matches!(run.lanes[0].items[0].1, Outcome::Completed)
    }

    /// The runs of the reports so far.
    fn reported(reports: &mut UnboundedReceiver<Report>) -> Vec<Run> {
        std::iter::from_fn(|| reports.try_recv().ok()).flat_map(|report| report.runs).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_never_polled_gives_its_runs_back() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        drop(fly(pilot(&done, &ownership, [fixtures::run(&ownership, 1)])));
        let runs = reported(&mut reports);
        assert!(matches!(runs[0].lanes[0].items[0].1, Outcome::Untried));
        assert!(runs[0].lanes[0].over && !runs[0].goes_on);
    }

    /// A run has not begun, another one has ended, and a third was reported.
    #[tokio::test(start_paused = true)]
    async fn what_was_not_reported_is_reported_whatever_ends_the_task() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let [fresh, mut ended, mut told] = [3, 2, 1].map(|count| fixtures::run(&ownership, count));
        ended.lanes[0].end(Outcome::Completed);
        told.take();
        drop(pilot(&done, &ownership, [fresh, told, ended]));
        let runs = reported(&mut reports);
        assert!(runs.iter().all(|run| !run.goes_on));
        let counts: Vec<usize> = runs.iter().map(|run| run.lanes[0].items.len()).collect();
        assert_eq!(counts, [3, 2]);
        assert!(matches!(runs[1].lanes[0].items[0].1, Outcome::Completed));
        drop(pilot(&done, &ownership, []));
        assert!(reports.try_recv().is_err(), "there is nothing to report");
    }

    /// The report has the mean time of a flight.
    #[tokio::test]
    async fn flights_that_end_at_once_are_reported_together() {
        let (done, mut reports) = unbounded_channel();
        let ownership = fixtures::owning_all();
        let runs = [(); 3].map(|()| fixtures::run(&ownership, 1));
        let began = Instant::now();
        fly(pilot(&done, &ownership, runs)).await;
        let took = began.elapsed();
        let report = reports.try_recv().unwrap();
        assert!(report.runs.len() == 3 && report.runs.iter().all(is_completed));
        assert!(
            report.pace.is_some_and(|pace| !pace.mean.is_zero() && pace.mean * 3 <= took && !pace.waits),
            "{:?}",
            report.pace
        );
        assert!(reports.try_recv().is_err());
    }

    /// A handler that waits for a permit.
    struct Waits(Arc<Semaphore>);

    impl Call for Waits {
        fn call<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(async {
                self.0.acquire().await.unwrap().forget();
                Ok(())
            })
        }
    }

    /// Its end is reported, or that its call was cut off.
    #[tokio::test(start_paused = true)]
    async fn a_flight_that_waits_ends_later_and_its_wait_is_reported() {
        for ends in [true, false] {
            let (done, mut reports) = unbounded_channel();
            let (ownership, permits) = (fixtures::owning_all(), Arc::new(Semaphore::new(0)));
            let runs = [run_of(Waits(Arc::clone(&permits)), &ownership), fixtures::run(&ownership, 1)];
            let task = tokio::spawn(fly(pilot(&done, &ownership, runs)));
            let first = reports.recv().await.unwrap();
            assert!(first.runs.len() == 1 && first.runs.iter().all(is_completed));
            assert!(first.pace.is_some_and(|pace| pace.waits) && reports.try_recv().is_err());
            match ends {
                true => permits.add_permits(1),
                false => task.abort(),
            }
            assert_eq!(task.await.is_ok(), ends);
            let last = reports.try_recv().unwrap();
            assert!(last.pace.is_none() && reports.try_recv().is_err());
            assert!(last.runs.len() == 1 && !last.runs[0].goes_on && is_completed(&last.runs[0]) == ends);
            assert_eq!(matches!(last.runs[0].lanes[0].items[0].1, Outcome::Lost), !ends);
        }
    }

    /// A handler that waits if it is to, and then blocks its thread until it is told to go on.
    struct Blocks {
        waits: bool,
        begins: mpsc::Sender<()>,
        told: Mutex<mpsc::Receiver<()>>,
    }

    impl Call for Blocks {
        fn call<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(async {
                if self.waits {
                    // A flight polls its call twice before it waits.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                }
                self.begins.send(()).unwrap();
                self.told.lock().unwrap().recv_timeout(LIMIT).map_err(HandlerError::new)
            })
        }
    }

    /// Of five runs, the third blocks its thread, and the second and the last wait for permits. Returns the runs that
    /// are reported before it may go on, and those after. `meanwhile` happens while it blocks.
    async fn held_up(
        waits: bool,
        meanwhile: impl AsyncFnOnce(Arc<Pilot>, Arc<Semaphore>),
    ) -> (Vec<Run>, Vec<Run>) {
        let ((done, mut reports), (tells, told), (begins, begun)) =
            (unbounded_channel(), mpsc::channel(), mpsc::channel());
        let ownership = fixtures::owning_all();
        let blocks = run_of(Blocks { waits, begins, told: Mutex::new(told) }, &ownership);
        let [a, d] = [(); 2].map(|()| fixtures::run(&ownership, 1));
        let permits = Arc::new(Semaphore::new(0));
        let [b, e] = [(); 2].map(|()| run_of(Waits(Arc::clone(&permits)), &ownership));
        let pilot = pilot(&done, &ownership, [a, b, blocks, d, e]);
        let task = tokio::spawn(fly(Arc::clone(&pilot)));
        begun.recv_timeout(LIMIT).unwrap();
        meanwhile(pilot, permits).await;
        let before = reported(&mut reports);
        tells.send(()).unwrap();
        task.await.unwrap();
        let after = reported(&mut reports);
        assert_eq!((ownership.permits_out(), before.len() + after.len()), (5, 5), "the reports have them");
        (before, after)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn another_pilot_takes_over_all_but_the_call_that_blocks() {
        for waits in [false, true] {
            let relieve = async |pilot: Arc<Pilot>, permits: Arc<Semaphore>| {
                permits.add_permits(2);
                fly(Arc::new(pilot.relieved())).await;
            };
            let (before, after) = held_up(waits, relieve).await;
            assert!(before.len() == 4 && before.iter().all(is_completed), "waits: {waits}");
            assert!(after.iter().all(is_completed));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cancellation_reports_all_but_the_call_that_blocks() {
        for (waits, outcomes) in [
            (false, ["completed", "lost", "untried", "untried"]),
            (true, ["completed", "completed", "lost", "lost"]),
        ] {
            let (before, after) = held_up(waits, async |pilot: Arc<Pilot>, _| drop(pilot.cancel())).await;
            let mut words: Vec<_> = before
                .iter()
                .map(|run| match run.lanes[0].items[0].1 {
                    Outcome::Completed => "completed",
                    Outcome::Untried => "untried",
                    Outcome::Lost => "lost",
                    _ => "other",
                })
                .collect();
            words.sort_unstable();
            assert_eq!(words, outcomes, "waits: {waits}");
            assert!(after.len() == 1 && after.iter().all(is_completed));
        }
    }
}
