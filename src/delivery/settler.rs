//! The settler: writes outcomes in batches and leaves no reply in doubt.

use std::{sync::Arc, time::Duration};

use crate::{
    record::{Change, Settlement},
    store::{ErrorClass, Guard, Resolution, SettleError, Settled, Store},
    telemetry::{Observers, Signal},
};

/// Pauses between tries while the database is away: from the first, doubling, to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Writes outcomes under one guard row.
pub(super) struct Settler {
    store: Arc<dyn Store>,
    observers: Observers,
    guard: Guard,
}

/// This instance has been evicted: nothing it has can be written any more.
pub(super) struct Evicted;

impl Settler {
    pub(super) fn new(store: Arc<dyn Store>, observers: Observers, guard: Guard) -> Self {
        Self { store, observers, guard }
    }

    /// Writes the batch, however long the database is away. Returns once it is durable, or once it
    /// is certain that it never will be.
    pub(super) async fn settle(&mut self, settlements: &[Settlement]) -> Result<Settled, Evicted> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.settle(self.guard, settlements).await {
                Ok(settled) => {
                    self.guard = self.guard.moved();
                    self.observers.emit(Signal::Settled { records: settled.applied + settled.held });
                    return Ok(settled);
                }
                Err(SettleError::Fenced) => None,
                Err(SettleError::Store(error)) => Some(error),
            };
            let at_fault = error.as_ref().is_some_and(|error| error.class == ErrorClass::Record);
            if let Some(error) = error {
                self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            }
            match resolve(&*self.store, &self.observers, self.guard).await {
                Resolution::Closed => return Err(Evicted),
                // How many holds were refused is not known: none counted is the safe answer.
                Resolution::Applied => {
                    self.guard = self.guard.moved();
                    return Ok(Settled { applied: settlements.len(), ..Settled::default() });
                }
                Resolution::NotApplied => self.guard = self.guard.raised(),
            }
            if at_fault {
                return Box::pin(self.settle_apart(settlements)).await;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// One outcome of the batch cannot be stored: finds it by halves and takes its error text away,
    /// which is all in it that a user wrote.
    async fn settle_apart(&mut self, settlements: &[Settlement]) -> Result<Settled, Evicted> {
        if let [one] = settlements {
            return self.settle(&[without_text(one)]).await;
        }
        let (first, second) = settlements.split_at(settlements.len() / 2);
        let first = self.settle(first).await?;
        let second = self.settle(second).await?;
        Ok(Settled { applied: first.applied + second.applied, held: first.held + second.held, number: None })
    }
}

fn without_text(settlement: &Settlement) -> Settlement {
    let mut settlement = settlement.clone();
    if let Change::Retry { error, .. } | Change::Fail { error, .. } = &mut settlement.change {
        "(the error text could not be stored)".clone_into(error);
    }
    settlement
}

/// Finds out what became of a write whose reply was lost, however long the database is away.
pub(super) async fn resolve(store: &dyn Store, observers: &Observers, guard: Guard) -> Resolution {
    let mut pause = FIRST_PAUSE;
    loop {
        match store.resolve(guard).await {
            Ok(resolution) => {
                let applied = resolution == Resolution::Applied;
                observers.emit(Signal::LostReplyResolved { applied });
                return resolution;
            }
            Err(error) => observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() }),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
