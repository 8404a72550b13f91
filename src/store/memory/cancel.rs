//! Cancelling records that are not due yet, in a user's transaction.

use tokio::time::Instant;

use super::{connection::MemoryConnection, locks::Lock, rows::Row};
use crate::{
    record::{Cancel, Named, RecordId, Status},
    store::{StoreError, Tables},
};

impl MemoryConnection {
    /// Cancels records. A committed record stays until the commit of this transaction, but is not fetched
    /// meanwhile.
    pub(super) async fn cancel(&mut self, tables: &Tables, cancel: &Cancel) -> Result<u64, StoreError> {
        // If another transaction cancels records of this key, wait for its commit or rollback.
        self.held.take("cancel", Lock::Cancelling(tables.clone(), cancel.key.clone())).await?;
        let mut freed = Vec::new();
        let client = self.client.clone();
        let count = client.with(|data, now| {
            self.on_this_server(data, "cancel")?;
            let mut count = self.cancel_own(tables, cancel, &mut freed);
            let outbox = data.outbox(tables);
            let found = outbox.records.all().filter(|(_, row)| is_cancelled(row, cancel, now));
            let found: Vec<(RecordId, Option<(String, Instant)>)> =
                found.map(|(id, row)| (id, to_free(row))).collect();
            for (id, dedup_key) in found {
                if outbox.cancelling.insert(id) {
                    self.writes.cancelled.push((tables.clone(), id));
                    freed.extend(dedup_key);
                    count += 1;
                }
            }
            Ok(count)
        })?;
        for (dedup_key, until) in freed {
            self.held.take("cancel", Lock::DedupKey(tables.clone(), dedup_key.clone())).await?;
            self.writes.dedup_keys.retain(|(of, own, at)| of != tables || *own != dedup_key || *at > until);
            self.writes.freed.push((tables.clone(), dedup_key, until));
        }
        Ok(count)
    }

    /// Cancels records that the same transaction has scheduled.
    fn cancel_own(&mut self, tables: &Tables, cancel: &Cancel, freed: &mut Vec<(String, Instant)>) -> u64 {
        let (before, now) = (self.writes.inserted.len(), self.client.now());
        self.writes.inserted.retain(|(of, _, row)| {
            let goes = of == tables && is_cancelled(row, cancel, now);
            if goes {
                freed.extend(to_free(row));
            }
            !goes
        });
        (before - self.writes.inserted.len()) as u64
    }
}

/// The dedup key of a cancelled record, and the time of the record: a key that was inserted later is that of another
/// event.
fn to_free(row: &Row) -> Option<(String, Instant)> {
    Some((row.new.dedup_key.clone()?, row.created))
}

/// Whether the record matches, was never tried, and is not due.
fn is_cancelled(row: &Row, cancel: &Cancel, now: Instant) -> bool {
    let named = match &cancel.named {
        Named::Event(event_id) => row.new.event_id == *event_id,
        Named::DedupKey(dedup_key) => row.new.dedup_key.as_ref() == Some(dedup_key),
    };
    named
        && row.new.key == cancel.key
        && row.status == Status::Delayed
        && row.attempts == 0
        && row.last_error.is_none()
        && row.lock_owner.is_none()
        && row.next_attempt.is_some_and(|at| at > now)
}
