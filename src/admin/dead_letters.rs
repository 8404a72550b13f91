//! The administration of the table of dead letters.

use super::{Admin, STEP, Step, next_of};
use crate::{
    record::RecordId,
    store::{DeadLetter, Filter, StoreError},
};

impl Admin {
    /// Lists dead letters with an id above `after` and their payloads, in the order of their records' ids. A
    /// page is held in memory: if payloads are large, keep `limit` small. Two statements.
    ///
    /// ```
    #[doc = include_str!("../doc/failed.txt")]
    /// for letter in admin.dead_letters(&Filter::all().handler("mailer"), 0, 100).await? {
    ///     println!("{} was to go to {}: {}", letter.lane.key, letter.target, letter.error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dead_letters(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(filter, after, limit).await
    }

    /// Schedules one dead letter again, as [`retry_dead_letters`](Self::retry_dead_letters) does. Returns
    /// false if no dead letter has this id.
    ///
    /// ```
    #[doc = include_str!("../doc/failed.txt")]
    /// assert!(!admin.retry_dead_letter(record).await?, "the record has failed, and is no dead letter");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry_dead_letter(&self, record: RecordId) -> Result<bool, StoreError> {
        self.take_dead_letter(record, true).await
    }

    /// Deletes one dead letter. Returns false if no dead letter has this id.
    ///
    /// ```
    #[doc = include_str!("../doc/failed.txt")]
    /// assert!(!admin.discard_dead_letter(record).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn discard_dead_letter(&self, record: RecordId) -> Result<bool, StoreError> {
        self.take_dead_letter(record, false).await
    }

    /// Schedules the next hundred dead letters above `after` again, in one transaction and in their order: as
    /// new records of the same events, for the same handlers, without deadlines. They come behind the pending
    /// records of their keys. Call it again with [`Step::next`] until there is none.
    ///
    /// ```
    #[doc = include_str!("../doc/failed.txt")]
    /// let of_mailer = Filter::all().handler("mailer");
    /// let mut after = Some(0);
    /// while let Some(from) = after {
    ///     after = admin.retry_dead_letters(&of_mailer, from).await?.next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry_dead_letters(&self, filter: &Filter, after: RecordId) -> Result<Step, StoreError> {
        self.take_dead_letters(filter, after, true).await
    }

    /// Deletes the next dead letters above `after`, in steps as
    /// [`retry_dead_letters`](Self::retry_dead_letters).
    ///
    /// ```
    #[doc = include_str!("../doc/failed.txt")]
    /// let step = admin.discard_dead_letters(&Filter::all().key("order-42"), 0).await?;
    /// assert_eq!((step.changed, step.next), (0, None));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn discard_dead_letters(&self, filter: &Filter, after: RecordId) -> Result<Step, StoreError> {
        self.take_dead_letters(filter, after, false).await
    }

    async fn take_dead_letter(&self, record: RecordId, schedule: bool) -> Result<bool, StoreError> {
        let taken = self.store.take_dead_letters(&[record], schedule).await?;
        self.tell_workers();
        Ok(taken == 1)
    }

    async fn take_dead_letters(
        &self,
        filter: &Filter,
        after: RecordId,
        schedule: bool,
    ) -> Result<Step, StoreError> {
        let ids = self.store.dead_letter_ids(filter, after, STEP).await?;
        let changed = if ids.is_empty() { 0 } else { self.store.take_dead_letters(&ids, schedule).await? };
        self.tell_workers();
        Ok(Step { changed, next: next_of(ids.into_iter()) })
    }
}
