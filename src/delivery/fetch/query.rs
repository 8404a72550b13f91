//! One fetch from the database: first the stops, then the pending records, then what has become due.

use std::{sync::Arc, time::Duration};

use crate::{
    instance::Generation,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Stop},
    rules::watermark::{LowWatermark, Plan},
    store::{Handlers, IdScan, Pick, Store, StoreError, Suspicion},
};

/// What a fetch is to bring.
pub(in crate::delivery) struct FetchRequest {
    pub(in crate::delivery) seq: u64,
    /// When it began, on the clock: no deadline that it brings is sooner over than by this.
    pub(in crate::delivery) began: Duration,
    /// Owned partitions in their turn.
    pub(in crate::delivery) turn: Vec<Partition>,
    /// Partitions whose stopped lanes are read first.
    pub(in crate::delivery) stops: PartitionSet,
    /// Those of which nothing is known yet: earlier owners may have crashed.
    pub(in crate::delivery) unread: PartitionSet,
    /// The generations under which those are owned.
    pub(in crate::delivery) generations: Vec<(Partition, Generation)>,
    /// Whether delayed records are fetched, too.
    pub(in crate::delivery) due: bool,
    /// Whether there is a reason in this process to fetch.
    pub(in crate::delivery) asked: bool,
    /// The version of the database at the last fetch without one.
    pub(in crate::delivery) version: Option<i64>,
    pub(in crate::delivery) skip: Vec<RecordId>,
    pub(in crate::delivery) limit: usize,
    /// Whose records. One handler's by themselves, or those of all handlers that are not fetched so.
    pub(in crate::delivery) handlers: Handlers,
    /// Only some of the records are fetched, each partition by itself.
    pub(in crate::delivery) part: bool,
    /// How far the ids are known; moved on by the fetch.
    pub(in crate::delivery) watermark: LowWatermark,
}

/// What it brought.
pub(in crate::delivery) struct FetchResult {
    pub(in crate::delivery) request: FetchRequest,
    pub(in crate::delivery) stops: Vec<Stop>,
    pub(in crate::delivery) suspicions: Vec<Suspicion>,
    pub(in crate::delivery) records: Vec<Record>,
    /// Whether pending ones are among them.
    pub(in crate::delivery) new: bool,
    /// Whether the limit cut it short: fetch again at once.
    pub(in crate::delivery) more: bool,
    /// Whether it has cut short what is due.
    pub(in crate::delivery) more_due: bool,
    pub(in crate::delivery) error: Option<StoreError>,
    /// How often the cluster has changed, if that was asked for.
    pub(in crate::delivery) cluster_changes: Option<i64>,
}

/// Asks the database. The stops are read before the records: a lane that the list does not name is
/// not stopped by anyone but this instance when the records are read, and of its own it knows.
pub(in crate::delivery) async fn fetch(store: Arc<dyn Store>, request: FetchRequest) -> FetchResult {
    let (stops, suspicions, records) = (Vec::new(), Vec::new(), Vec::new());
    let (new, more, more_due) = (false, false, false);
    let mut result = FetchResult {
        request,
        stops,
        suspicions,
        records,
        new,
        more,
        more_due,
        error: None,
        cluster_changes: None,
    };
    if let Err(error) = fill(&*store, &mut result).await {
        result.records.clear();
        result.error = Some(error);
    }
    result
}

async fn fill(store: &dyn Store, result: &mut FetchResult) -> Result<(), StoreError> {
    if result.request.is_in_vain(store).await? {
        return Ok(());
    }
    let FetchRequest { turn, stops, unread, due, skip, limit, handlers, part, watermark, .. } =
        &mut result.request;
    let owned: PartitionSet = turn.iter().copied().collect();
    if !stops.is_empty() {
        result.stops = store.stops(*stops).await?;
    }
    if !unread.is_empty() {
        result.suspicions = store.suspicions(*unread).await?;
    }
    if *due {
        let (records, changes) = store.fetch_due(owned, Pick { skip, handlers, limit: *limit }).await?;
        (result.records, result.cluster_changes) = (records, Some(changes));
        result.more_due = result.records.len() >= *limit;
        result.more = result.more_due;
    }
    let left = limit.saturating_sub(result.records.len()).max(1);
    let pick = Pick { skip, handlers, limit: left };
    let plan = if *part { Plan::ByPartition } else { plan(store, watermark, owned).await? };
    let pending = match plan {
        Plan::ScanById { from, reach } => {
            let scan = IdScan { partitions: owned, from, reach, pick };
            let (records, horizon) = store.scan_by_id(scan).await?;
            let last = records.last().map_or(from, |record| record.delivery.id);
            result.more |= watermark.scanned((from, reach), left, (records.len(), last), horizon);
            records
        }
        Plan::ByPartition | Plan::FindHead => {
            let records = store.fetch_by_partition(turn, pick).await?;
            result.more |= records.len() >= left;
            records
        }
    };
    result.new = !pending.is_empty();
    match result.records.is_empty() {
        true => result.records = pending,
        false => result.records.extend(pending),
    }
    Ok(())
}

impl FetchRequest {
    pub(in crate::delivery) fn partitions(&self) -> PartitionSet {
        self.turn.iter().copied().collect()
    }

    /// Nobody has asked for more than what others have committed, and nobody has committed anything.
    async fn is_in_vain(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        if self.asked || self.due || !self.stops.is_empty() {
            return Ok(false);
        }
        // It is read before the records: what is committed in between is fetched once more.
        let before = std::mem::replace(&mut self.version, store.version().await?);
        Ok(self.version.is_some() && self.version == before)
    }
}

/// How to fetch, once it is known where the head is.
async fn plan(
    store: &dyn Store,
    watermark: &mut LowWatermark,
    owned: PartitionSet,
) -> Result<Plan, StoreError> {
    match watermark.plan(owned) {
        Plan::FindHead => Ok(watermark.head_found(store.find_head(owned).await?)),
        plan => Ok(plan),
    }
}
