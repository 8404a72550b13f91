//! Counts the handled records.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use keylane::{Delivery, Handler, HandlerError};
use tokio::time::{Instant, sleep};

use super::super::{Result, tally::Event};

/// The longest time without a record.
const PATIENCE: Duration = Duration::from_secs(300);

/// Records that were handled.
#[derive(Default)]
pub(super) struct Counted(AtomicUsize);

/// The handler that counts.
pub(super) struct Counts(Arc<Counted>);

impl Counted {
    pub(super) fn handler(self: &Arc<Self>) -> Counts {
        Counts(Arc::clone(self))
    }

    pub(super) fn handled(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Returns when this many records were handled.
    ///
    /// # Errors
    /// If no record is handled for too long.
    pub(super) async fn until(&self, records: usize) -> Result<()> {
        let (mut last, mut since) = (self.handled(), Instant::now());
        while self.handled() < records {
            sleep(Duration::from_millis(1)).await;
            if self.handled() != last {
                (last, since) = (self.handled(), Instant::now());
            } else if since.elapsed() > PATIENCE {
                return Err(format!("{last} records were handled, {records} are waited for").into());
            }
        }
        Ok(())
    }

    /// # Errors
    /// Unless exactly this many records were handled.
    pub(super) fn check(&self, records: usize) -> Result<()> {
        match self.handled() {
            handled if handled == records => Ok(()),
            handled => Err(format!("{handled} records were handled instead of {records}").into()),
        }
    }
}

impl Handler for Counts {
    type Event = Event;

    async fn handle(&self, event: Event, _: &Delivery) -> std::result::Result<(), HandlerError> {
        std::hint::black_box(event);
        self.0.0.fetch_add(1, Relaxed);
        Ok(())
    }
}
