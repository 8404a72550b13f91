//! The watch over the pilots: finds those that a call holds up, because it blocks its thread.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::{Instant, Interval, MissedTickBehavior, interval},
};

use super::pilot::{Pilot, Waiting};

/// The longest time that a call may hold up the other runs of its task.
const HELD_UP: Duration = Duration::from_millis(100);

/// The pilots of several runs.
#[derive(Default)]
pub(super) struct Watch {
    /// The pilots, and when each was last relieved. Pushed by `add`, cleaned by each look.
    watched: Vec<(Weak<Pilot>, Option<Instant>)>,
    /// Made by the first wait.
    timer: Option<Interval>,
}

impl Watch {
    /// Watches a pilot. On a runtime of one thread, a call that blocks holds up everything, so there is nothing to watch.
    pub(super) fn add(&mut self, pilot: &Arc<Pilot>) {
        if pilot.runs.len() > 1 && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            self.watched.push((Arc::downgrade(pilot), None));
        }
    }

    /// Waits until calls hold pilots up, and returns others in their places. Cancel safe.
    pub(super) async fn relieved(&mut self) -> Vec<Arc<Pilot>> {
        loop {
            if self.watched.is_empty() {
                return std::future::pending().await;
            }
            let timer = self.timer.get_or_insert_with(|| {
                let mut timer = interval(HELD_UP);
                timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
                timer
            });
            timer.tick().await;
            let relieved = self.look(Instant::now());
            if !relieved.is_empty() {
                return relieved;
            }
        }
    }

    fn look(&mut self, now: Instant) -> Vec<Arc<Pilot>> {
        let mut others = Vec::new();
        self.watched.retain_mut(|(pilot, relieved)| {
            let Some(pilot) = pilot.upgrade() else { return false };
            // The first relief also reports what has ended.
            let since = match *relieved {
                None => pilot.busy_since(),
                Some(relieved) => {
                    pilot.busy_since().filter(|_| pilot.has_more()).map(|since| since.max(relieved))
                }
            };
            if since.is_some_and(|since| now.saturating_duration_since(since) >= HELD_UP) {
                *relieved = Some(now);
                others.push(Arc::new(pilot.relieved()));
            }
            true
        });
        others.iter().for_each(|other| self.add(other));
        others
    }

    /// Lets the pilots begin no further run. Returns the flights that wait for a pilot which a call may hold up.
    pub(super) fn cancel_all(&mut self) -> Vec<Waiting> {
        let pilots = std::mem::take(&mut self.watched).into_iter().filter_map(|(pilot, _)| pilot.upgrade());
        pilots.filter(|pilot| pilot.busy_since().is_some()).flat_map(|pilot| pilot.cancel()).collect()
    }
}
