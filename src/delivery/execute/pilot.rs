//! A pilot: the part of one task in its runs. If a call blocks the thread, another pilot takes over what waits.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, TryLockError},
    task::{Context, Poll, Waker},
};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::runs::{Runs, Taken, locked};

/// A flight that waits. Dropping it reports its run.
pub(super) type Waiting = BoxFuture<'static, Option<Taken>>;

/// A task and what it flies.
pub(super) struct Pilot {
    /// The runs, of which it takes those that no other pilot has taken. Never changes.
    pub(super) runs: Arc<Runs>,
    /// Since when the task has a thread. Written by `busy` and `idle`.
    busy_since: Mutex<Option<Instant>>,
    /// The flights that wait. Pushed by `share`, emptied by `give_up`.
    waiting: Mutex<Vec<Arc<Waits>>>,
}

impl Pilot {
    pub(super) fn new(runs: Arc<Runs>) -> Self {
        Self { runs, busy_since: Mutex::default(), waiting: Mutex::default() }
    }

    pub(super) fn busy_since(&self) -> Option<Instant> {
        *locked(&self.busy_since)
    }

    pub(super) fn busy(&self, now: Instant) {
        *locked(&self.busy_since) = Some(now);
    }

    pub(super) fn idle(&self) {
        *locked(&self.busy_since) = None;
    }

    /// A flight waits. It is flown by this pilot, until another one takes over.
    pub(super) fn share(&self, flight: Waiting) -> Share {
        let waits = Arc::new(Waits(Mutex::new((Some(flight), None))));
        locked(&self.waiting).push(Arc::clone(&waits));
        Share(waits)
    }

    /// The flights of a pilot that was relieved by this one.
    pub(super) fn shares(&self) -> Vec<Share> {
        locked(&self.waiting).iter().map(|waits| Share(Arc::clone(waits))).collect()
    }

    /// Whether another pilot would have something to do.
    pub(super) fn has_more(&self) -> bool {
        self.runs.has_next() || !locked(&self.waiting).is_empty()
    }

    /// A pilot in the place of this one, which a call holds up.
    pub(super) fn relieved(&self) -> Self {
        let waiting = self.give_up().map(|flight| Arc::new(Waits(Mutex::new((Some(flight), None)))));
        Self { waiting: Mutex::new(waiting.collect()), ..Self::new(Arc::clone(&self.runs)) }
    }

    /// No further run begins. Returns the flights that wait: dropping them reports all but the call that holds up this
    /// pilot.
    pub(super) fn cancel(&self) -> Vec<Waiting> {
        self.runs.close();
        self.give_up().collect()
    }

    /// The flights that wait, without the one under way.
    fn give_up(&self) -> impl Iterator<Item = Waiting> {
        std::mem::take(&mut *locked(&self.waiting)).into_iter().filter_map(|waits| waits.take())
    }
}

/// A flight that waits, with the waker of the pilot that flies it.
struct Waits(Mutex<(Option<Waiting>, Option<Waker>)>);

impl Waits {
    /// Takes the flight, unless it is under way or has ended. Its pilot finds that it is gone.
    fn take(&self) -> Option<Waiting> {
        let (flight, waker) = match self.0.try_lock() {
            Ok(mut waits) => std::mem::take(&mut *waits),
            Err(TryLockError::Poisoned(waits)) => std::mem::take(&mut *waits.into_inner()),
            Err(TryLockError::WouldBlock) => return None,
        };
        waker.into_iter().for_each(Waker::wake);
        flight
    }
}

/// A pilot's share in a flight that waits. `None` if another pilot has the flight.
pub(super) struct Share(Arc<Waits>);

impl Future for Share {
    type Output = Option<Taken>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Taken>> {
        let mut waits = locked(&self.0.0);
        let (flight, waker) = &mut *waits;
        let polled = flight.as_mut().map_or(Poll::Ready(None), |flight| flight.as_mut().poll(context));
        match polled {
            Poll::Ready(_) => *flight = None,
            Poll::Pending if waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) => {}
            Poll::Pending => *waker = Some(context.waker().clone()),
        }
        polled
    }
}
