//! One fetch from the database: first the stops, then the due records, then the pending records.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    instance::Generation,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Stop},
    rules::reading::{Reading, Statement},
    store::{Handlers, IdScan, Pick, Store, StoreError, Suspicion},
};

/// Partitions that are served in turn.
#[derive(Clone, Copy)]
pub(in crate::delivery) struct Turn {
    /// The partitions. Never changes.
    pub(in crate::delivery) partitions: PartitionSet,
    /// The number of the partition that is first. Never changes.
    pub(in crate::delivery) first: u8,
}

impl Turn {
    /// The partitions in the order in which they are served.
    pub(super) fn order(self) -> Vec<Partition> {
        let mut order: Vec<Partition> = self.partitions.iter().collect();
        let behind = order.partition_point(|partition| partition.number() < self.first);
        order.rotate_left(behind);
        order
    }
}

/// What a fetch is to read.
pub(in crate::delivery) struct FetchRequest {
    pub(in crate::delivery) seq: u64,
    /// When the fetch began, on the clock. The remaining time of each deadline counts from here: no deadline
    /// is taken as earlier than it is.
    pub(in crate::delivery) began: Duration,
    /// Owned partitions, and where their turn begins.
    pub(in crate::delivery) turn: Turn,
    /// Partitions whose stops are read first.
    pub(in crate::delivery) stops: PartitionSet,
    /// Partitions whose suspicions are read, because nothing is known of them yet: earlier owners may have
    /// crashed.
    pub(in crate::delivery) unread: PartitionSet,
    /// The generations of the partitions in `stops`.
    pub(in crate::delivery) generations: Vec<(Partition, Generation)>,
    /// Whether due records are fetched too.
    pub(in crate::delivery) due: bool,
    /// Whether this process has a reason to fetch.
    pub(in crate::delivery) asked: bool,
    /// The version of the database at the last fetch. Replaced by the fetch if it reads the version.
    pub(in crate::delivery) version: Option<i64>,
    pub(in crate::delivery) skip: Vec<RecordId>,
    pub(in crate::delivery) limit: usize,
    /// The handlers whose records are fetched: one hot handler, or all that are not hot.
    pub(in crate::delivery) handlers: Handlers,
    /// Whether the fetch is of a part: some partitions or one handler, each partition from its own head.
    pub(in crate::delivery) part: bool,
    /// The id from which pending records are read. Moved on by the fetch.
    pub(in crate::delivery) reading: Reading,
}

/// What a fetch has brought.
pub(in crate::delivery) struct FetchResult {
    pub(in crate::delivery) request: FetchRequest,
    pub(in crate::delivery) stops: Vec<Stop>,
    pub(in crate::delivery) suspicions: Vec<Suspicion>,
    pub(in crate::delivery) records: Vec<Arc<Record>>,
    /// Whether pending records are among them.
    pub(in crate::delivery) new: bool,
    /// Whether the limit cut the fetch short: fetch again at once.
    pub(in crate::delivery) more: bool,
    /// Whether the limit cut the due records short.
    pub(in crate::delivery) more_due: bool,
    pub(in crate::delivery) error: Option<StoreError>,
    /// The number of partitions whose heads were searched for, and the time that it took. `None` without such
    /// a search.
    pub(in crate::delivery) walked: Option<(usize, Duration)>,
    /// The number of changes of the cluster, if the fetch has read it.
    pub(in crate::delivery) cluster_changes: Option<i64>,
}

/// Reads from the database. The stops are read before the records: if the list does not name a lane, no other
/// instance has stopped that lane when the records are read. This instance knows its own stops.
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
        walked: None,
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
    let FetchRequest { turn, stops, unread, due, skip, limit, handlers, part, reading, .. } =
        &mut result.request;
    if !stops.is_empty() {
        result.stops = store.stops(*stops).await?;
    }
    if !unread.is_empty() {
        result.suspicions = store.suspicions(*unread).await?;
    }
    if *due {
        let (records, changes) =
            store.fetch_due(turn.partitions, Pick { skip, handlers, limit: *limit }).await?;
        (result.records, result.cluster_changes) = (records, Some(changes));
        result.more_due = result.records.len() >= *limit;
        result.more = result.more_due;
    }
    let left = limit.saturating_sub(result.records.len()).max(1);
    let pick = Pick { skip, handlers, limit: left };
    let (pending, more) = match *part {
        true => by_partition(store, *turn, pick, &mut result.walked).await?,
        false => behind_the_watermark(store, reading, *turn, pick, &mut result.walked).await?,
    };
    result.more |= more;
    result.new = !pending.is_empty();
    match result.records.is_empty() {
        true => result.records = pending,
        false => result.records.extend(pending),
    }
    Ok(())
}

impl FetchRequest {
    pub(in crate::delivery) fn partitions(&self) -> PartitionSet {
        self.turn.partitions
    }

    /// Whether the fetch can be left out: this process has no reason to fetch, and no other connection has
    /// committed.
    async fn is_in_vain(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        // The version is read before the records: a commit in between is fetched once more.
        Ok(self.is_unasked() && self.repeats(store.version().await?))
    }

    fn is_unasked(&self) -> bool {
        !self.asked && !self.due && self.stops.is_empty()
    }

    /// Takes the version of the database, if it has one. Returns whether the version is that of the last fetch.
    fn repeats(&mut self, version: Option<i64>) -> bool {
        let before = std::mem::replace(&mut self.version, version);
        version.is_some() && version == before
    }
}

/// Pending records from the watermark on, and whether there may be more.
async fn behind_the_watermark(
    store: &dyn Store,
    reading: &mut Reading,
    turn: Turn,
    pick: Pick<'_>,
    walked: &mut Option<(usize, Duration)>,
) -> Result<(Vec<Arc<Record>>, bool), StoreError> {
    let partitions = turn.partitions;
    loop {
        match reading.next() {
            Statement::DrawNumber => reading.drew(store.draw_number().await?),
            Statement::FindBystanders(of) => reading.bystanders_found(store.find_bystanders(&of).await?),
            Statement::FindHead(of) => {
                let began = Instant::now();
                let head = store.find_head(of, pick.skip).await?;
                *walked = Some((of.len(), began.elapsed()));
                reading.head_found(&head);
            }
            Statement::ScanById { from, reach, open, lists, ahead } => {
                let (within, list) = (&[][..], if lists { reading.listed(pick.limit) } else { 0 });
                let ahead = ahead.as_deref();
                let scan = IdScan { partitions, from, reach, within, list, open: &open, ahead, pick };
                if let Some(scanned) = scan_by_id(store, reading, scan).await? {
                    return Ok(scanned);
                }
            }
            Statement::ScanOthers { within, open } => {
                let (from, list) =
                    (within.first().map_or(0, |(first, _)| *first), reading.listed(pick.limit));
                let reach = within.last().map_or(0, |(_, last)| last.saturating_add(1) - from);
                let scan =
                    IdScan { partitions, from, reach, within: &within, list, open: &open, ahead: None, pick };
                if let Some(scanned) = scan_by_id(store, reading, scan).await? {
                    return Ok(scanned);
                }
            }
            Statement::FetchByPartition => return by_partition(store, turn, pick, walked).await,
        }
    }
}

/// The records of a scan, and whether there may be more. `None` if the scan has begun too late.
async fn scan_by_id(
    store: &dyn Store,
    reading: &mut Reading,
    scan: IdScan<'_>,
) -> Result<Option<(Vec<Arc<Record>>, bool)>, StoreError> {
    let (records, horizon) = store.scan_by_id(scan).await?;
    let found = (records.len(), records.last().map(|record| record.delivery.id));
    Ok(reading.scanned(scan.pick.limit, found, &horizon).map(|more| (records, more)))
}

/// Pending records of each partition from its head, and whether there may be more.
async fn by_partition(
    store: &dyn Store,
    turn: Turn,
    pick: Pick<'_>,
    walked: &mut Option<(usize, Duration)>,
) -> Result<(Vec<Arc<Record>>, bool), StoreError> {
    let began = Instant::now();
    let records = store.fetch_by_partition(&turn.order(), pick).await?;
    if records.is_empty() {
        *walked = Some((turn.partitions.len(), began.elapsed()));
    }
    let more = records.len() >= pick.limit;
    Ok((records, more))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        delivery::fixtures,
        memory::MemoryPool,
        record::{Change, Due, OnFailure, Settlement},
        rules::reading::Readings,
        store::NewInstance,
    };

    fn request(limit: usize, skip: &BTreeSet<RecordId>) -> FetchRequest {
        FetchRequest {
            seq: 1,
            began: Duration::ZERO,
            turn: Turn { partitions: PartitionSet::ALL, first: 0 },
            stops: PartitionSet::EMPTY,
            unread: PartitionSet::EMPTY,
            generations: Vec::new(),
            due: true,
            asked: true,
            version: None,
            skip: skip.iter().copied().collect(),
            limit,
            handlers: Handlers::Every,
            part: false,
            reading: Readings::default().begin(PartitionSet::ALL, PartitionSet::EMPTY, false),
        }
    }

    /// Fetches at most `limit` records.
    async fn fetched(pool: &MemoryPool, limit: usize, skip: &BTreeSet<RecordId>) -> FetchResult {
        fetch(fixtures::store(pool), request(limit, skip)).await
    }

    /// If its limit cuts a fetch short, the result says what is to be fetched again at once.
    #[tokio::test(start_paused = true)]
    async fn a_fetch_brings_what_is_due_first_and_tells_what_is_left() {
        let pool = MemoryPool::new();
        let later = Due::After(Duration::from_secs(1));
        fixtures::schedule(&pool, &[Due::Now, Due::Now, later, later, later]).await;
        tokio::time::advance(Duration::from_secs(2)).await;
        let mut brought = BTreeSet::new();
        let mut told = Vec::new();
        loop {
            let result = fetched(&pool, 2, &brought).await;
            let ids: Vec<RecordId> = result.records.iter().map(|record| record.delivery.id).collect();
            brought.extend(&ids);
            told.push((ids, result.new, result.more, result.more_due));
            if !result.more {
                break;
            }
        }
        // Each fetch of due records brings a pending one too: due records cannot delay pending ones for ever.
        let expected = [
            (vec![3, 4, 1], true, true, true),
            (vec![5, 2], true, true, false),
            (vec![], false, false, false),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_fetch_that_nothing_asks_for_is_left_out_while_nobody_commits() {
        let unasked = || FetchRequest { asked: false, due: false, ..request(1, &BTreeSet::new()) };
        assert!(unasked().is_unasked());
        assert!(!FetchRequest { asked: true, ..unasked() }.is_unasked());
        assert!(!FetchRequest { due: true, ..unasked() }.is_unasked());
        assert!(!FetchRequest { stops: PartitionSet::ALL, ..unasked() }.is_unasked());
        let mut request = unasked();
        let repeated =
            [None, None, Some(1), Some(1), Some(2), Some(2), None].map(|version| request.repeats(version));
        assert_eq!(repeated, [false, false, false, true, false, true, false]);
    }

    /// A fetch of a part reads each partition from its head; the time of an empty one shows how long that takes.
    #[tokio::test(start_paused = true)]
    async fn a_part_is_read_from_its_heads() {
        let pool = MemoryPool::new();
        fixtures::schedule(&pool, &[Due::Now, Due::Now]).await;
        let part = |limit, skip: &[RecordId]| FetchRequest {
            part: true,
            ..request(limit, &skip.iter().copied().collect())
        };
        let store = fixtures::store(&pool);
        let first = fetch(Arc::clone(&store), part(1, &[])).await;
        assert_eq!((first.records.len(), first.more, first.walked), (1, true, None));
        let second = fetch(Arc::clone(&store), part(2, &[1])).await;
        assert_eq!((second.records.len(), second.more, second.walked), (1, false, None));
        let none = fetch(store, part(2, &[1, 2])).await;
        assert_eq!((none.records.len(), none.more), (0, false));
        assert_eq!(none.walked.map(|(partitions, _)| partitions), Some(256));
    }

    /// A lane is blocked, and the process that called its record has crashed.
    #[tokio::test(start_paused = true)]
    async fn stops_and_suspicions_are_read_where_they_are_not_known() {
        let pool = MemoryPool::new();
        fixtures::schedule(&pool, &[Due::Now]).await;
        let (store, fence) = (fixtures::store(&pool), fixtures::fence());
        let (id, name, version) = (fence.instance, String::new(), String::new());
        store.join(&NewInstance { id, name, version, fence_rows: 1 }).await.unwrap();
        store.track_call(id, Partition::of("a"), 1).await.unwrap();
        let change = Change::Fail { error: String::new(), lane: OnFailure::Block, counted: true };
        store.settle(fence, &[Settlement { id: 1, failures: 0, change }]).await.unwrap();
        let beat = store.view().await.unwrap().members[0].beat;
        assert!(store.evict(id, Some(beat)).await.unwrap());
        let found = async |stops, unread| {
            let request = FetchRequest { stops, unread, ..request(1, &BTreeSet::new()) };
            let result = fetch(fixtures::store(&pool), request).await;
            (result.stops.len(), result.suspicions.len())
        };
        let (all, none) = (PartitionSet::ALL, PartitionSet::EMPTY);
        assert_eq!(found(none, none).await, (0, 0));
        assert_eq!(found(all, none).await, (1, 0));
        assert_eq!(found(none, all).await, (0, 1));
    }

    /// With a known watermark a fetch reads from there on, and searches for no head.
    #[tokio::test(start_paused = true)]
    async fn a_fetch_goes_on_where_the_last_one_has_ended() {
        let (pool, mut readings) = (MemoryPool::new(), Readings::default());
        fixtures::schedule(&pool, &[Due::Now, Due::Now]).await;
        let mut brought = BTreeSet::new();
        let mut walked = Vec::new();
        for _ in 0..3 {
            let reading = readings.begin(PartitionSet::ALL, PartitionSet::EMPTY, false);
            let result =
                fetch(fixtures::store(&pool), FetchRequest { reading, ..request(9, &brought) }).await;
            readings.end(&result.request.reading);
            brought.extend(result.records.iter().map(|record| record.delivery.id));
            walked.push(result.walked.is_some());
        }
        assert_eq!((brought.len(), walked), (2, vec![true, false, false]));
    }
}
