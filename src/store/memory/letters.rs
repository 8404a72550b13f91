//! The table of dead letters.

use std::{collections::BTreeMap, ops::Bound};

use tokio::time::Instant;

use super::rows::Row;
use crate::{
    record::RecordId,
    store::{DeadLetter, DeadLetterCause, Filter},
};

/// A dead letter: the row of the record, the cause and the time.
#[derive(Clone, Debug)]
pub(super) struct DeadLetterRow {
    pub(super) row: Row,
    pub(super) cause: DeadLetterCause,
    pub(super) failed: Instant,
}

pub(super) type DeadLetters = BTreeMap<RecordId, DeadLetterRow>;

/// The letters of a filter above an id, in id order.
pub(super) fn fitting<'a>(
    letters: &'a DeadLetters,
    filter: &'a Filter,
    after: RecordId,
) -> impl Iterator<Item = (RecordId, &'a DeadLetterRow)> {
    let above = letters.range((Bound::Excluded(after), Bound::Unbounded));
    above.filter(|(_, letter)| filter.fits(&letter.row.lane())).map(|(id, letter)| (*id, letter))
}

impl DeadLetterRow {
    pub(super) fn shown(&self, id: RecordId, now: Instant) -> DeadLetter {
        let Self { row, cause, failed } = self;
        DeadLetter {
            id,
            event_id: row.new.event_id,
            lane: row.lane(),
            record_type: row.new.record_type.to_string(),
            content_type: row.new.content_type.to_string(),
            payload: row.new.payload.clone(),
            headers: row.new.headers.clone(),
            attempts: cause.attempts,
            target: cause.target.clone(),
            error: cause.error.clone(),
            error_class: cause.class.clone(),
            error_kind: cause.kind.to_owned(),
            age: now.saturating_duration_since(row.created),
            since: now.saturating_duration_since(*failed),
        }
    }
}
