//! The settler: writes outcomes in batches and resolves each lost reply.

use std::sync::Arc;

use crate::{
    delivery::{
        resolve::{FIRST_PAUSE, LAST_PAUSE, resolve},
        signals::NO_TEXT,
    },
    record::{Change, RecordId, Settlement},
    store::{ErrorClass, FenceRow, Resolution, SettleError, Settled, Store, StoreError},
    telemetry::{Observers, Signal},
};

/// Writes outcomes under one fence row.
pub(in crate::delivery) struct Settler {
    /// Where outcomes are written. Never changes.
    store: Arc<dyn Store>,
    /// Receives the signals. Never changes.
    observers: Observers,
    /// The fence row of the settler. Its counter moves on with each settle and each resolution.
    fence: FenceRow,
}

/// The result of a batch.
pub(in crate::delivery) struct Written {
    pub(in crate::delivery) settled: Settled,
    /// Records whose outcome the database refuses. These outcomes were not written.
    pub(in crate::delivery) refused: Vec<RecordId>,
}

/// This instance has been evicted: no write of it is applied any more.
pub(in crate::delivery) struct Evicted;

impl Settler {
    pub(in crate::delivery) fn new(store: Arc<dyn Store>, observers: Observers, fence: FenceRow) -> Self {
        Self { store, observers, fence }
    }

    /// Writes the batch, and tries again while the database is unreachable. Returns once each outcome is
    /// durable or refused. Errors: [`Evicted`], if the fence row is closed.
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

    /// Writes the batch as a whole. Returns the error if the database refuses it.
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
                // The numbers of applied holds and of lanes released in steps are unknown. No hold and every
                // lane are the safe answers.
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

    /// The database refuses an outcome of the batch: finds it by halves. Then its error text, the only
    /// content of a user, is replaced. If the database refuses that too, a trigger of the user is the cause.
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
        Ok(Written { settled: both(&one, &two), refused })
    }
}

/// Whether a second try would be refused again: the outcome is the cause, not the connection.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused)
}

fn without_text(settlement: &Settlement) -> Settlement {
    let mut settlement = settlement.clone();
    if let Change::Retry { error, .. } | Change::Fail { error, .. } = &mut settlement.change {
        NO_TEXT.clone_into(error);
    }
    settlement
}

/// The results of two settles as one. Their transactions have no number in common.
fn both(one: &Settled, two: &Settled) -> Settled {
    Settled {
        applied: one.applied + two.applied,
        held: one.held + two.held,
        releasing: one.releasing + two.releasing,
        number: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_settles_count_as_one() {
        let settled = |applied, held, releasing| Settled { applied, held, releasing, number: None };
        let sum = both(&settled(1, 20, 300), &settled(4, 50, 600));
        assert_eq!((sum.applied, sum.held, sum.releasing), (5, 70, 900));
        assert_eq!(sum.number, None);
    }

    /// All other errors are of the connection or the server, and the batch is tried again as it is.
    #[test]
    fn only_errors_of_the_outcome_itself_are_refusals() {
        use ErrorClass::{Duplicate, Reconnect, Record, Refused, Resource, Retry, Setup, WrongNode};
        let refused = |class| is_refusal(&StoreError::new("settle", class, "no"));
        assert!([Record, Duplicate, Refused].into_iter().all(refused));
        assert!(![Retry, Reconnect, WrongNode, Resource, Setup].into_iter().any(refused));
    }

    #[test]
    fn an_outcome_without_its_text_is_the_same_outcome() {
        let settlement = |change| Settlement { id: 1, failures: 2, change };
        assert_eq!(without_text(&settlement(Change::Complete)), settlement(Change::Complete));
        let retry = |error: &str| Change::Retry {
            delay: std::time::Duration::ZERO,
            error: error.to_owned(),
            stop: true,
            counted: true,
        };
        assert_eq!(without_text(&settlement(retry("\0"))), settlement(retry(NO_TEXT)));
    }
}
