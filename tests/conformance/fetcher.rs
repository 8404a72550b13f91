//! Fetches as the delivery wing makes them: from the low watermark on, without the records in memory.

use std::{collections::BTreeSet, sync::Arc};

use keylane::{
    Record, RecordId,
    inner::{Change, IdScan, Pick},
    partition::PartitionSet,
    rules::{
        horizon::Horizon,
        reading::{Readings, Statement},
    },
};

use crate::{
    outbox::{ALL, Outbox, Worker, a_moment, ids, record, settlement},
    target::Target,
};

/// One instance with its low watermark and the records in memory.
pub(crate) struct Fetcher<'o, T: Target> {
    outbox: &'o Outbox<T>,
    worker: Worker,
    pub(crate) owned: PartitionSet,
    pub(crate) limit: usize,
    pub(crate) readings: Readings,
    /// Partitions in which a record below the watermark may be pending. Taken by the next fetch.
    pub(crate) missed: PartitionSet,
    /// Records that were fetched and are not settled.
    pub(crate) memory: BTreeSet<RecordId>,
    /// The first id of the last scan, and its horizon.
    pub(crate) scanned: Option<(RecordId, Horizon)>,
    /// The ranges of the last scan that left out what was seen.
    pub(crate) others: Vec<(RecordId, RecordId)>,
    pub(crate) more: bool,
}

impl<'o, T: Target> Fetcher<'o, T> {
    pub(crate) async fn join(outbox: &'o Outbox<T>) -> Self {
        Self {
            outbox,
            worker: outbox.join().await,
            owned: PartitionSet::ALL,
            limit: ALL,
            readings: Readings::default(),
            missed: PartitionSet::EMPTY,
            memory: BTreeSet::new(),
            scanned: None,
            others: Vec::new(),
            more: false,
        }
    }

    /// Fetches once, and again as long as a fetch is cut short and brings nothing. How far back the first one
    /// begins depends on open transactions of others on the same server. The fetched records are in memory
    /// from then on.
    pub(crate) async fn fetch(&mut self) -> Vec<Arc<Record>> {
        for _ in 0..1_000 {
            let records = self.fetch_once().await;
            if !records.is_empty() || !self.more {
                return records;
            }
        }
        panic!("fetches do not come to an end: {:?}", self.readings);
    }

    async fn fetch_once(&mut self) -> Vec<Arc<Record>> {
        let store = &self.outbox.store;
        let skip: Vec<RecordId> = self.memory.iter().copied().collect();
        let (limit, partitions) = (self.limit, self.owned);
        let missed = std::mem::replace(&mut self.missed, PartitionSet::EMPTY);
        let mut reading = self.readings.begin(partitions, missed, false);
        let records = loop {
            match reading.next() {
                Statement::DrawNumber => reading.drew(store.draw_number().await.unwrap()),
                Statement::FindBystanders(of) => {
                    reading.bystanders_found(store.find_bystanders(&of).await.unwrap());
                }
                Statement::FindHead(of) => reading.head_found(&store.find_head(of, &skip).await.unwrap()),
                statement @ (Statement::ScanById { .. } | Statement::ScanOthers { .. }) => {
                    let list = reading.listed(limit);
                    let pick = Pick::new(&skip, limit);
                    let none = IdScan {
                        partitions,
                        from: 0,
                        reach: 0,
                        within: &[],
                        list,
                        open: &[],
                        ahead: None,
                        pick,
                    };
                    let scan = match &statement {
                        Statement::ScanById { from, reach, open, lists, ahead } => {
                            let list = if *lists { list } else { 0 };
                            IdScan { from: *from, reach: *reach, list, open, ahead: ahead.as_deref(), ..none }
                        }
                        Statement::ScanOthers { within, open } => {
                            let (from, end) = (within[0].0, within[within.len() - 1].1 + 1);
                            IdScan { from, reach: end - from, within, open, ..none }
                        }
                        _ => unreachable!(),
                    };
                    let from = scan.from;
                    let (records, horizon) = store.scan_by_id(scan).await.unwrap();
                    assert!(ids(&records).is_sorted(), "not in id order: {:?}", ids(&records));
                    let found = (records.len(), records.last().map(|record| record.delivery.id));
                    if let Some(more) = reading.scanned(limit, found, &horizon) {
                        self.more = more;
                        if let Statement::ScanOthers { within, .. } = statement {
                            self.others = within;
                        }
                        self.scanned = Some((from, horizon));
                        break records;
                    }
                    assert!(records.is_empty(), "a scan that begins too late reads nothing");
                }
                Statement::FetchByPartition => {
                    let turn: Vec<_> = partitions.iter().collect();
                    let records = store.fetch_by_partition(&turn, Pick::new(&skip, limit)).await.unwrap();
                    self.more = records.len() >= limit;
                    break records;
                }
            }
        };
        self.readings.end(&reading);
        assert!(records.len() <= limit, "{} records, at most {limit}", records.len());
        for id in ids(&records) {
            assert!(self.memory.insert(id), "{id} is in memory, but was brought again");
        }
        records
    }

    /// Completes the records in memory with the lowest ids, at most `most`.
    pub(crate) async fn settle(&mut self, most: usize) {
        let done: Vec<RecordId> = self.memory.iter().take(most).copied().collect();
        self.complete(&done).await;
    }

    pub(crate) async fn complete(&mut self, done: &[RecordId]) {
        if done.is_empty() {
            return;
        }
        self.readings.settle_begins();
        let complete = |id: &RecordId| settlement((*id, 0, Change::Complete));
        let settled = self.worker.settle_all(done.iter().map(complete).collect()).await;
        assert_eq!(settled.applied, done.len());
        self.readings.settle_ends(settled.number);
        self.memory.retain(|id| !done.contains(id));
    }

    /// Fetches and completes until no more records come. Returns all of them.
    pub(crate) async fn drain(&mut self) -> Vec<Arc<Record>> {
        let mut all = Vec::new();
        // A record that one fetch cannot know may come with the next one.
        let mut empty = 0;
        for _ in 0..1_000 {
            let records = self.fetch().await;
            empty = if records.is_empty() { empty + 1 } else { 0 };
            all.extend(records);
            self.settle(ALL).await;
            if empty >= 3 && !self.more {
                return all;
            }
        }
        panic!("fetches do not come to an end: {:?}", self.readings);
    }

    /// The first id of the next scan, or `None` if it is unknown.
    pub(crate) fn next(&self) -> Option<RecordId> {
        let mut reading = self.readings.clone().begin(self.owned, PartitionSet::EMPTY, false);
        loop {
            match reading.next() {
                Statement::DrawNumber => reading.drew(None),
                Statement::FindBystanders(_) => reading.bystanders_found(None),
                Statement::ScanById { from, .. } => return Some(from),
                Statement::ScanOthers { within, .. } => return Some(within[0].0),
                Statement::FindHead(_) | Statement::FetchByPartition => return None,
            }
        }
    }

    /// Fetches, with new records, until the next scan begins behind this id. How soon depends on open
    /// transactions of others on the same server: a scan begins up to 128 ids before the first one that it needs.
    pub(crate) async fn until_behind(&mut self, id: RecordId) {
        let started = tokio::time::Instant::now();
        while self.next().is_none_or(|from| from <= id) {
            assert!(started.elapsed().as_secs() < 60, "stays at {:?}, {id} is not resolved", self.next());
            self.outbox.schedule(&std::array::from_fn::<_, 16, _>(|_| record("behind"))).await;
            let found = ids(&self.fetch().await);
            self.complete(&found).await;
            a_moment().await;
        }
    }
}
