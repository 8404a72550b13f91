//! A client of the database in memory: how its calls reach the tables, and the faults they meet.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    faults::Fault,
    journal::Written,
    state::{Data, Shared},
};
use crate::{
    store::{ErrorClass, StoreError},
    wake::yield_to_others,
};

/// The conditions that a simulation sets for the calls of one client. The clients of one database can have
/// different conditions.
pub trait Conditions: fmt::Debug + Send + Sync {
    /// The delays and the fault of the next call of this name. Called once per call, before its work.
    fn meet(&self, call: &'static str) -> Passage;

    /// The clock of the database, which differs from the clock of the client. It never goes back.
    fn now(&self) -> Instant;

    /// Receives the writes that one transaction of this client has committed. The database is locked
    /// meanwhile, so the implementation must not call it.
    fn wrote(&self, written: Vec<Written>);
}

/// The delays and the fault of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// The time until the database does the work.
    pub before: Duration,
    /// How the call fails, or `None`.
    pub fault: Option<Fault>,
    /// The time from the work until the client has the reply.
    pub after: Duration,
}

/// The database, and the conditions of the way to it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) shared: Arc<Shared>,
    conditions: Option<Arc<dyn Conditions>>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, conditions: Option<Arc<dyn Conditions>>) -> Self {
        Self { shared, conditions }
    }

    /// One call: its work in one critical section, with the delays before and after and the fault.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Data, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        let Passage { fault, after, .. } = self.set_out(name).await;
        let done = match fault {
            Some(fault @ (Fault::NotApplied | Fault::Conflict)) => Err(fault.error(name)),
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

    /// Goes to the database: waits, and returns the fault of the call, which the caller applies.
    pub(super) async fn set_out(&self, name: &'static str) -> Passage {
        // A call of a database lets other tasks run meanwhile. So must this call, or a poll loop would never
        // yield.
        yield_to_others().await;
        let mut passage = self.conditions.as_ref().map_or_else(Passage::default, |met| met.meet(name));
        wait(passage.before).await;
        passage.fault = passage.fault.or_else(|| self.shared.faults.next(name));
        passage
    }

    /// One critical section. Its committed writes are reported before another one begins.
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

/// Waits, unless the time is zero.
pub(super) async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// The error of a transaction whose server was replaced by a failover.
pub(super) fn failed_over(call: &'static str) -> StoreError {
    StoreError::new(call, ErrorClass::Reconnect, "the server has failed over since the transaction began")
}
