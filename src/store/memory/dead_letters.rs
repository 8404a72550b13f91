//! The calls about dead letters.

use async_trait::async_trait;

use super::{
    letters::{DeadLetterRow, fitting},
    rows::Row,
    store::MemoryStore,
};
use crate::{
    record::RecordId,
    store::{DeadLetter, DeadLetterCause, DeadLetterStore, Filter, StoreError},
};

#[async_trait]
impl DeadLetterStore for MemoryStore {
    async fn copy_to_dead_letters(&self, id: RecordId, cause: &DeadLetterCause) -> Result<(), StoreError> {
        self.call("copy to dead letters", |outbox, now| {
            let Some(row) = outbox.records.get(id).cloned() else { return };
            let letter = || DeadLetterRow { row, cause: cause.clone(), failed: now };
            outbox.dead_letters.entry(id).or_insert_with(letter);
        })
        .await
    }

    async fn dead_letters(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.call("dead letters", |outbox, now| {
            let shown = fitting(&outbox.dead_letters, filter, after).take(limit);
            shown.map(|(id, letter)| letter.shown(id, now)).collect()
        })
        .await
    }

    async fn dead_letter_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        self.call("dead letter ids", |outbox, _| {
            fitting(&outbox.dead_letters, filter, after).take(limit).map(|(id, _)| id).collect()
        })
        .await
    }

    async fn take_dead_letters(&self, ids: &[RecordId], schedule: bool) -> Result<usize, StoreError> {
        self.call("take dead letters", |outbox, now| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            let taken: Vec<DeadLetterRow> =
                ids.iter().filter_map(|id| outbox.dead_letters.remove(id)).collect();
            let count = taken.len();
            for DeadLetterRow { mut row, .. } in taken.into_iter().filter(|_| schedule) {
                row.new.dedup_key = None;
                let id = outbox.draw_id();
                outbox.records.insert(id, Row::pending(row.new, now));
            }
            count
        })
        .await
    }
}
