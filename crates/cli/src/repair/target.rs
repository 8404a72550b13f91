//! The two tables of failed events, failed records and dead letters, with the same calls for both.

use std::{fmt, time::Duration};

use keylane::{
    RecordId, StoreError,
    admin::{Admin, Filter},
};
use tokio::time::Instant;

use super::listed::Listed;

/// More than the precision of the times of any database.
const RESOLUTION: Duration = Duration::from_millis(5);

/// The table of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Records that have failed and are still in their lanes.
    Failed,
    /// Records that were moved into the table of dead letters.
    DeadLetters,
}

/// What the command does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// They are delivered again.
    Retry,
    /// They are deleted.
    Discard,
}

impl Target {
    /// A page, by ids above `after`.
    pub(super) async fn page(
        self,
        admin: &Admin,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        Ok(match self {
            Self::Failed => admin.failed(filter, after, limit).await?.into_iter().map(Listed::from).collect(),
            Self::DeadLetters => {
                admin.dead_letters(filter, after, limit).await?.into_iter().map(Listed::from).collect()
            }
        })
    }

    /// Changes one of them. Returns false if the id does not exist.
    pub(super) async fn one(self, admin: &Admin, id: RecordId, repair: Repair) -> Result<bool, StoreError> {
        match (self, repair) {
            (Self::Failed, Repair::Retry) => admin.retry(id).await,
            (Self::Failed, Repair::Discard) => admin.discard(id).await,
            (Self::DeadLetters, Repair::Retry) => admin.retry_dead_letter(id).await,
            (Self::DeadLetters, Repair::Discard) => admin.discard_dead_letter(id).await,
        }
    }

    /// Changes the next hundred above `after`. Returns how many were changed, and where the next step begins.
    ///
    /// A dead letter that is scheduled again while its target is still away is soon a dead letter again, with a higher
    /// id. Records that have failed since the command has `begun` are left out, because the command would never end.
    pub(super) async fn step(
        self,
        admin: &Admin,
        filter: &Filter,
        after: RecordId,
        repair: Repair,
        begun: Instant,
    ) -> Result<(usize, Option<RecordId>), StoreError> {
        let step = match (self, repair) {
            (Self::Failed, Repair::Retry) => admin.retry_all(filter, after).await?,
            (Self::Failed, Repair::Discard) => admin.discard_all(filter, after).await?,
            (Self::DeadLetters, _) => {
                // Before the question: the database answers for a later moment, so nothing older is left.
                let elapsed = begun.elapsed();
                let first = admin.dead_letters(filter, after, 1).await?;
                if first.first().is_none_or(|letter| letter.since + RESOLUTION < elapsed) {
                    return Ok((0, None));
                }
                match repair {
                    Repair::Retry => admin.retry_dead_letters(filter, after).await?,
                    Repair::Discard => admin.discard_dead_letters(filter, after).await?,
                }
            }
        };
        Ok((step.changed, step.next))
    }

    /// A count of them, in words.
    pub(super) fn count(self, count: usize) -> impl fmt::Display {
        let noun = match (self, count) {
            (Self::Failed, 1) => "failed record",
            (Self::Failed, _) => "failed records",
            (Self::DeadLetters, 1) => "dead letter",
            (Self::DeadLetters, _) => "dead letters",
        };
        format!("{count} {noun}")
    }

    /// The sentence for ids that do not exist, of so many that were given.
    pub(super) fn none_with(self, ids: &[RecordId], given: usize) -> String {
        let list = ids.iter().map(RecordId::to_string).collect::<Vec<_>>().join(", ");
        let noun = self.count(2).to_string().split_off(2);
        format!("{} of {given} ids are not among the {noun}: {list}; `list` shows those that are", ids.len())
    }
}
