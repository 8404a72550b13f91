//! A client of the database in memory: how its calls reach the tables, and what befalls them on the way.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Data, Fault, Shared, journal::Written};
use crate::store::{ErrorClass, StoreError};

/// What one client meets, as a simulation decides it. The clients of one database can meet different things.
pub trait Conditions: fmt::Debug + Send + Sync {
    /// How the next call of this name goes. Called once per call, before it is done.
    fn meet(&self, call: &'static str) -> Passage;

    /// The clock of the database, which is not the clock of the client. It never goes back.
    fn now(&self) -> Instant;

    /// What a call of this client has committed in one transaction. The database is locked meanwhile: this must not
    /// call it.
    fn wrote(&self, written: Vec<Written>);
}

/// How one call goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// The time until the database does the work.
    pub before: Duration,
    /// Whether the call fails.
    pub fault: Option<Fault>,
    /// The time until the client has the answer.
    pub after: Duration,
}

/// The database and the way to it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) shared: Arc<Shared>,
    conditions: Option<Arc<dyn Conditions>>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, conditions: Option<Arc<dyn Conditions>>) -> Self {
        Self { shared, conditions }
    }

    /// One call: all of its work in one critical section, and what befalls it before and after.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Data, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        let Passage { fault, after, .. } = self.set_out(name).await;
        let done = match fault {
            Some(fault @ Fault::NotApplied) => Err(fault.error(name)),
            Some(Fault::Panic) => Fault::Panic.raise(),
            Some(fault @ Fault::LostReply) => {
                self.with(work);
                Err(fault.error(name))
            }
            None => Ok(self.with(work)),
        };
        wait(after).await;
        done
    }

    /// The way to the database. What follows must heed the fault.
    pub(super) async fn set_out(&self, name: &'static str) -> Passage {
        // A call of a database lets other tasks run meanwhile. So must this call, or a poll loop would never
        // yield.
        tokio::task::yield_now().await;
        let mut passage = self.conditions.as_ref().map_or_else(Passage::default, |met| met.meet(name));
        wait(passage.before).await;
        passage.fault = passage.fault.or_else(|| self.shared.faults.next(name));
        passage
    }

    /// One critical section. What it has written is told before another begins.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Data, Instant) -> T) -> T {
        let mut data = self.shared.data();
        let done = work(&mut data, self.now());
        if let Some(conditions) = &self.conditions {
            let written: Vec<Written> = data.take_journals().collect();
            if !written.is_empty() {
                conditions.wrote(written);
            }
        }
        done
    }

    /// The clock of the database.
    pub(super) fn now(&self) -> Instant {
        self.conditions.as_ref().map_or_else(Instant::now, |met| met.now())
    }
}

/// The way back, or nothing at all.
pub(super) async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// A transaction whose server has given way to another.
pub(super) fn failed_over(call: &'static str) -> StoreError {
    StoreError::new(call, ErrorClass::Reconnect, "the server has failed over since the transaction began")
}
