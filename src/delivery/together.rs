//! Flights that share a task, and report together what ended together.

use std::{mem::replace, sync::Arc, task::Poll, time::Duration};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{
    attempt::Surroundings,
    flight::{Flight, Landed, Report},
    run::run,
};

/// Flights that have waited and report together at most.
const REPORTED_TOGETHER: usize = 32;

/// Flights that have landed. Dropped, it reports them, whatever became of the task.
struct Arrivals {
    flights: Vec<Landed>,
    done: UnboundedSender<Report>,
}

impl Arrivals {
    fn report(&mut self, mean_run: Option<Duration>) {
        let flights = std::mem::take(&mut self.flights);
        // No receiver: the pipeline is gone, and this task is about to be cancelled.
        let _ = self.done.send(Report { flights, mean_run });
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        if !self.flights.is_empty() {
            self.report(None);
        }
    }
}

/// Runs all of them, each until it waits before the next begins.
pub(super) async fn fly(flights: Vec<Flight>, around: Arc<Surroundings>, done: UnboundedSender<Report>) {
    let (began, count) = (Instant::now(), flights.len() as u32);
    let mut arrivals = Arrivals { flights: Vec::with_capacity(flights.len()), done };
    let waiting = FuturesUnordered::new();
    // One that ends at once leaves its place in memory to the next.
    let mut place = Box::pin(OptionFuture::from(None));
    for flight in flights {
        place.as_mut().set(Some(one(flight, &around)).into());
        match futures::poll!(place.as_mut()) {
            Poll::Ready(landed) => arrivals.flights.extend(landed),
            Poll::Pending => waiting.push(replace(&mut place, Box::pin(None.into()))),
        }
    }
    arrivals.report(Some(began.elapsed() / count.max(1)));
    let mut waiting = waiting.ready_chunks(REPORTED_TOGETHER);
    while let Some(landed) = waiting.next().await {
        arrivals.flights.extend(landed.into_iter().flatten());
        arrivals.report(None);
    }
}

async fn one(mut flight: Flight, around: &Surroundings) -> Landed {
    run(&mut flight, around).await;
    flight.land()
}
