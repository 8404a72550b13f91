//! The administration by people: instances and partitions, stopped lanes, failed records.
//!
//! ```
//! use keylane::{Outbox, admin::Filter, memory::MemoryPool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let outbox = Outbox::builder(MemoryPool::new()).build().await?;
//! outbox.migrate().await?;
//! let admin = outbox.admin();
//!
//! // A page of a hundred; the next one begins after the last record of this one.
//! let of_mailer = Filter::all().handler("mailer");
//! let page = admin.failed(&of_mailer, 0, 100).await?;
//! let next = page.last().map(|record| record.id);
//!
//! // All that has failed for this handler is delivered again, a hundred records per call.
//! let mut after = 0;
//! while let Some(next) = admin.retry_all(&of_mailer, after).await?.next {
//!     after = next;
//! }
//! # assert_eq!(next, None);
//! # Ok(())
//! # }
//! ```

mod dead_letters;

use std::sync::Arc;

use crate::{
    commit_wake::CommitWake,
    config::RetentionConfig,
    notifications::Announcer,
    record::RecordId,
    store::{PURGED_AT_ONCE, Repair, Store, StoreError},
};
pub use crate::{
    instance::{Generation, InstanceId, InstanceState},
    record::{Lane, Status, StopReason},
    store::{Counts, DeadLetter, FailedRecord, Filter, Instance, PartitionOwner, Rights, StoppedLane},
};

/// The most failed records that one call of [`Admin::retry_all`] or a similar method reads. Up to a thousand
/// held records may return behind each of them in the same transaction.
const STEP: usize = 100;

/// The administration of an outbox: see the [module](self). It needs no handlers and no workers and is cheap
/// to clone. A method is one call to the database unless its doc says otherwise.
#[derive(Clone)]
pub struct Admin {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) retention: RetentionConfig,
    pub(crate) wake: CommitWake,
    pub(crate) announcer: Option<Arc<Announcer>>,
}

/// The result of one step over many failed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The number of records that the step has changed. It is lower than the number of records read if
    /// another process was faster.
    pub changed: usize,
    /// The record after which the next step begins. `None` if no matching record is left.
    pub next: Option<RecordId>,
}

impl Admin {
    /// Counts records by status and stopped lanes by reason. Reads the whole record table.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let counts = admin.counts().await?;
    /// assert_eq!(counts.of(Status::Failed), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.store.counts().await
    }

    /// Lists live instances, then stopped and dead ones, the latest first. Rows of ended instances stay for
    /// `cluster.purge_instances_after`.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// for instance in admin.instances(100).await? {
    ///     println!("{}: {:?}, {} partitions", instance.name, instance.state, instance.partitions);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError> {
        self.store.instances(limit).await
    }

    /// Lists all partitions with their owners, in the order of their numbers.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let free = admin.partitions().await?.iter().filter(|partition| partition.owner.is_none()).count();
    /// assert_eq!(free, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn partitions(&self) -> Result<Vec<PartitionOwner>, StoreError> {
        self.store.partitions().await
    }

    /// Drains an instance: it finishes its calls, hands its partitions over to the other instances, and
    /// stops, as if its service had called [`shutdown`](crate::Running::shutdown). The instance does not join
    /// again until its process starts workers again. Its service learns of it by
    /// [`Finished::Drained`](crate::Finished::Drained). Returns false if no active instance has this id.
    ///
    /// If the instance is evicted before it has read the request (its connection to the database was lost),
    /// it joins again with a new id. If the drained instance was the only one, nothing is delivered.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// assert!(admin.drain(running.instance()).await?);
    /// assert!(matches!(running.finished().await, Finished::Drained { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self, instance: InstanceId) -> Result<bool, StoreError> {
        self.store.drain(instance).await
    }

    /// Lists stopped lanes whose stopping record has an id above `after`, in the order of these ids.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// for stopped in admin.stopped_lanes(&Filter::all(), 0, 100).await? {
    ///     println!("{}: {}, {} records wait", stopped.lane.key, stopped.reason, stopped.held);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError> {
        self.store.stopped_lanes(filter, after, limit).await
    }

    /// Lists failed records with an id above `after` and their payloads, in id order. A page is held in
    /// memory: if payloads are large, keep `limit` small. Two statements.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// for record in admin.failed(&Filter::all().handler("mailer"), 0, 100).await? {
    ///     println!("{}: {}", record.id, record.last_error.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError> {
        self.store.failed(filter, after, limit).await
    }

    /// Delivers a failed record again, from attempt 1. If the record blocks its lane, the lane goes on after
    /// it. Returns false if no failed record has this id.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// assert!(admin.retry(record).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry(&self, record: RecordId) -> Result<bool, StoreError> {
        self.repair(record, Repair::Retry).await
    }

    /// Deletes a failed record. If the record blocks its lane, the lane goes on without it. Returns false if
    /// no failed record has this id.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// assert!(admin.discard(record).await?);
    /// assert!(!admin.discard(record).await?, "it is gone");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn discard(&self, record: RecordId) -> Result<bool, StoreError> {
        self.repair(record, Repair::Discard).await
    }

    /// Does as [`retry`](Self::retry), with another payload.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// assert!(admin.replace_payload(record, br#"{"id":43}"#.to_vec()).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replace_payload(&self, record: RecordId, payload: Vec<u8>) -> Result<bool, StoreError> {
        self.repair(record, Repair::Replace(payload)).await
    }

    /// [Retries](Self::retry) the next hundred failed records above `after` in one transaction. Call it again
    /// with [`Step::next`] until there is none.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let of_mailer = Filter::all().handler("mailer");
    /// let mut after = Some(0);
    /// while let Some(from) = after {
    ///     after = admin.retry_all(&of_mailer, from).await?.next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry_all(&self, filter: &Filter, after: RecordId) -> Result<Step, StoreError> {
        self.repair_step(filter, after, &Repair::Retry).await
    }

    /// [Discards](Self::discard) the next failed records above `after`, in steps as
    /// [`retry_all`](Self::retry_all).
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let step = admin.discard_all(&Filter::all().key("order-42"), 0).await?;
    /// assert_eq!((step.changed, step.next), (1, None));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn discard_all(&self, filter: &Filter, after: RecordId) -> Result<Step, StoreError> {
        self.repair_step(filter, after, &Repair::Discard).await
    }

    /// [Replaces the payloads](Self::replace_payload) of the next hundred failed records above `after` by the
    /// results of `corrected`. If the result is `None`, the record stays unchanged. Each record has a
    /// separate transaction: after an error, the records before it are replaced.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let corrected = |record: &FailedRecord| Some(record.payload.to_ascii_lowercase());
    /// let step = admin.replace_all(&Filter::all(), 0, corrected).await?;
    /// assert_eq!(step.changed, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replace_all(
        &self,
        filter: &Filter,
        after: RecordId,
        mut corrected: impl FnMut(&FailedRecord) -> Option<Vec<u8>>,
    ) -> Result<Step, StoreError> {
        let page = self.store.failed(filter, after, STEP).await?;
        let mut changed = 0;
        for record in &page {
            if let Some(payload) = corrected(record) {
                changed += usize::from(self.replace_payload(record.id, payload).await?);
            }
        }
        Ok(Step { changed, next: next_of(page.iter().map(|record| record.id)) })
    }

    /// Removes a handler from the published list, so that nothing more is scheduled for the handler. Its
    /// records stay, and are unroutable while no build has the handler. Returns false if the handler was not
    /// listed.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// assert!(admin.retire_handler("mailer").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retire_handler(&self, handler: &str) -> Result<bool, StoreError> {
        self.store.retire_handler(handler).await
    }

    /// Deletes completed, archived and dedup rows older than their settings, and unlocked keys of the strict
    /// order, in batches. Returns the number of deleted rows. The workers purge regularly; this method purges
    /// at once.
    ///
    /// ```
    #[doc = include_str!("doc/failed.txt")]
    /// let rows = admin.purge().await?;
    /// println!("{rows} rows were older than their settings");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn purge(&self) -> Result<u64, StoreError> {
        let RetentionConfig { completed_for, dedup_for, .. } = self.retention;
        let mut purged = 0;
        loop {
            let round = self.store.purge(completed_for, dedup_for).await?;
            purged += round;
            if round < PURGED_AT_ONCE {
                return Ok(purged);
            }
        }
    }

    async fn repair(&self, record: RecordId, repair: Repair) -> Result<bool, StoreError> {
        let repaired = self.store.repair(record, &repair).await?;
        self.tell_workers();
        Ok(repaired)
    }

    async fn repair_step(
        &self,
        filter: &Filter,
        after: RecordId,
        repair: &Repair,
    ) -> Result<Step, StoreError> {
        let ids = self.store.failed_ids(filter, after, STEP).await?;
        let changed = if ids.is_empty() { 0 } else { self.store.repair_all(&ids, repair).await? };
        self.tell_workers();
        Ok(Step { changed, next: next_of(ids.into_iter()) })
    }

    fn tell_workers(&self) {
        self.wake.nudge();
        if let Some(announcer) = &self.announcer {
            announcer.announce();
        }
    }
}

/// The record after which the next step begins: `None` after a page that is not full.
fn next_of(ids: impl ExactSizeIterator<Item = RecordId>) -> Option<RecordId> {
    if ids.len() < STEP { None } else { ids.last() }
}
