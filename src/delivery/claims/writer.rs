//! Writes outcomes of claims until each is durable or refused.

use std::sync::Arc;

use crate::{
    delivery::{
        resolve::{FIRST_PAUSE, LAST_PAUSE},
        signals::NO_TEXT,
    },
    instance::InstanceId,
    record::RecordId,
    store::{ClaimEnd, ClaimOutcome, ErrorClass, Store, StoreError},
    telemetry::{Observers, Signal},
};

/// Writes outcomes of one owner.
#[derive(Clone)]
pub(in crate::delivery) struct Writer {
    /// Where outcomes are written. Never changes.
    store: Arc<dyn Store>,
    /// Receives the signals. Never changes.
    observers: Observers,
    /// The owner of the claims. Never changes.
    owner: InstanceId,
}

/// The result of a write.
#[derive(Debug, Default)]
pub(in crate::delivery) struct Written {
    /// How many records were still claimed.
    pub(in crate::delivery) records: usize,
    /// Records whose outcome the database refuses. These outcomes were not written.
    pub(in crate::delivery) refused: Vec<RecordId>,
}

impl Writer {
    pub(in crate::delivery) fn new(store: Arc<dyn Store>, observers: Observers, owner: InstanceId) -> Self {
        Self { store, observers, owner }
    }

    /// Writes the outcomes, and tries again while the database is unreachable. A repetition after a lost reply
    /// writes nothing twice.
    pub(in crate::delivery) async fn write(&self, outcomes: &[ClaimOutcome]) -> Written {
        match self.write_together(outcomes).await {
            Ok(records) => Written { records, refused: Vec::new() },
            Err(_) => Box::pin(self.write_apart(outcomes)).await,
        }
    }

    /// Writes the outcomes as a whole. Returns the error if the database refuses them.
    async fn write_together(&self, outcomes: &[ClaimOutcome]) -> Result<usize, StoreError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.settle_claims(self.owner, outcomes).await {
                Ok(records) => return Ok(records),
                Err(error) => error,
            };
            self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            if matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused) {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// The database refuses an outcome: finds it by halves. Then its error text, the only content of a user, is
    /// replaced. If the database refuses that too, a trigger of the user is the cause.
    async fn write_apart(&self, outcomes: &[ClaimOutcome]) -> Written {
        if let [one] = outcomes {
            let bare = without_text(one);
            let records = match bare == *one {
                true => None,
                false => self.write_together(&[bare]).await.ok(),
            };
            let refused = if records.is_some() { Vec::new() } else { vec![one.id] };
            return Written { records: records.unwrap_or_default(), refused };
        }
        let (first, second) = outcomes.split_at(outcomes.len() / 2);
        let Written { records, mut refused } = self.write(first).await;
        let rest = self.write(second).await;
        refused.extend(rest.refused);
        Written { records: records + rest.records, refused }
    }
}

fn without_text(outcome: &ClaimOutcome) -> ClaimOutcome {
    let mut outcome = outcome.clone();
    if let ClaimEnd::Retry { error, .. } | ClaimEnd::Fail { error, .. } = &mut outcome.end {
        NO_TEXT.clone_into(error);
    }
    outcome
}
