//! The settler: writes outcomes in batches and leaves no reply in doubt.

use std::sync::Arc;

use crate::{
    delivery::resolve::{FIRST_PAUSE, LAST_PAUSE, resolve},
    record::{Change, RecordId, Settlement},
    store::{ErrorClass, FenceRow, Resolution, SettleError, Settled, Store, StoreError},
    telemetry::{Observers, Signal},
};

/// Writes outcomes under one fence row.
pub(in crate::delivery) struct Settler {
    /// Never changes.
    store: Arc<dyn Store>,
    /// Never changes.
    observers: Observers,
    /// The settler's fence row. Moved on by each settle and by `resolve`.
    fence: FenceRow,
}

/// What became of a batch.
pub(in crate::delivery) struct Written {
    pub(in crate::delivery) settled: Settled,
    /// Records whose outcome the database refuses; it was not written.
    pub(in crate::delivery) refused: Vec<RecordId>,
}

/// This instance has been evicted: nothing it has can be written any more.
pub(in crate::delivery) struct Evicted;

impl Settler {
    pub(in crate::delivery) fn new(store: Arc<dyn Store>, observers: Observers, fence: FenceRow) -> Self {
        Self { store, observers, fence }
    }

    /// Writes the batch, however long the database is away. Returns once it is durable, or once it
    /// is certain that it never will be. What the database refuses by itself is returned as refused.
    pub(in crate::delivery) async fn settle(
        &mut self,
        settlements: &[Settlement],
    ) -> Result<Written, Evicted> {
        let error = match self.settle_together(settlements).await? {
            Ok(settled) => return Ok(Written { settled, refused: Vec::new() }),
            Err(error) => error,
        };
        Box::pin(self.settle_apart(settlements, error)).await
    }

    /// As above, but all or nothing: returns why the database refuses it.
    async fn settle_together(
        &mut self,
        settlements: &[Settlement],
    ) -> Result<Result<Settled, StoreError>, Evicted> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.settle(self.fence, settlements).await {
                Ok(settled) => {
                    self.fence = self.fence.moved();
                    self.observers.emit(Signal::Settled { records: settled.applied + settled.held });
                    return Ok(Ok(settled));
                }
                Err(SettleError::Fenced) => None,
                Err(SettleError::Store(error)) => Some(error),
            };
            if let Some(error) = &error {
                self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            }
            match resolve(&*self.store, &self.observers, self.fence).await {
                Resolution::Closed => return Err(Evicted),
                // How many holds were refused is not known, nor how many lanes go on in steps: none and all
                // are the safe answers.
                Resolution::Applied => {
                    self.fence = self.fence.moved();
                    let (applied, releasing) = (settlements.len(), settlements.len());
                    return Ok(Ok(Settled { applied, releasing, ..Settled::default() }));
                }
                Resolution::NotApplied => self.fence = self.fence.invalidated(),
            }
            if let Some(error) = error.filter(is_refusal) {
                return Ok(Err(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// One outcome of the batch cannot be stored: finds it by halves. Its error text is taken away, which
    /// is all in it that a user wrote; if that does not help, a trigger of the user's refuses it.
    async fn settle_apart(
        &mut self,
        settlements: &[Settlement],
        error: StoreError,
    ) -> Result<Written, Evicted> {
        if let [one] = settlements {
            let bare = without_text(one);
            let refused = match bare == *one {
                true => Err(error),
                false => self.settle_together(&[bare]).await?,
            };
            return Ok(match refused {
                Ok(settled) => Written { settled, refused: Vec::new() },
                Err(_) => Written { settled: Settled::default(), refused: vec![one.id] },
            });
        }
        let (first, second) = settlements.split_at(settlements.len() / 2);
        let Written { settled: one, mut refused } = self.settle(first).await?;
        let Written { settled: two, refused: more } = self.settle(second).await?;
        refused.extend(more);
        let settled = Settled {
            applied: one.applied + two.applied,
            held: one.held + two.held,
            releasing: one.releasing + two.releasing,
            number: None,
        };
        Ok(Written { settled, refused })
    }
}

/// Whether the same again would be refused again: the outcome is at fault, not the connection.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused)
}

fn without_text(settlement: &Settlement) -> Settlement {
    let mut settlement = settlement.clone();
    if let Change::Retry { error, .. } | Change::Fail { error, .. } = &mut settlement.change {
        "(the error text could not be stored)".clone_into(error);
    }
    settlement
}
