//! A small worker instead of the delivery wing: fetches, handles, fails some records, settles.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use keylane::{
    Name, Record, RecordId,
    inner::{Change, NewRecord, Pick, Settlement},
};
use uuid::Uuid;

use crate::{
    outbox::{Outbox, record, settlement},
    target::Target,
};

const KEYS: usize = 12;

/// The records that a worker keeps between rounds.
#[derive(Default)]
struct Handled {
    /// Completed records, by key and in order.
    delivered: BTreeMap<Name, Vec<Uuid>>,
    failed_once: HashSet<Uuid>,
    /// The records that have stopped lanes.
    stopped: HashMap<Name, RecordId>,
}

impl Handled {
    /// Handles a record: every twentieth event fails once.
    fn handle(&mut self, record: &Record, place: &HashMap<Uuid, usize>) -> Change {
        let delivery = &record.delivery;
        if let Some(behind) = self.stopped.get(&delivery.key).filter(|behind| **behind != delivery.id) {
            return Change::Hold { behind: *behind };
        }
        if place[&delivery.event_id] % 20 == 7 && self.failed_once.insert(delivery.event_id) {
            self.stopped.insert(delivery.key.clone(), delivery.id);
            let delay = Duration::from_millis(5);
            return Change::Retry { delay, error: "refused once".to_owned(), stop: true, counted: true };
        }
        self.delivered.entry(delivery.key.clone()).or_default().push(delivery.event_id);
        match self.stopped.remove(&delivery.key) {
            Some(_) => Change::CompleteAndResume,
            None => Change::Complete,
        }
    }

    fn handle_all(&mut self, records: &[Arc<Record>], place: &HashMap<Uuid, usize>) -> Vec<Settlement> {
        let change =
            |record: &Arc<Record>| (record.delivery.id, record.failures(), self.handle(record, place));
        records.iter().map(change).map(settlement).collect()
    }
}

pub(crate) async fn nothing_overtakes_the_five_percent_that_fail_once<T: Target>(outbox: &Outbox<T>) {
    let records: Vec<NewRecord> = (0..600).map(|n| record(&format!("order-{}", n % KEYS))).collect();
    let place: HashMap<Uuid, usize> =
        records.iter().enumerate().map(|(place, record)| (record.event_id, place)).collect();
    let mut unscheduled = records.chunks(60);
    let mut worker = outbox.join().await;
    let mut handled = Handled::default();
    let started = tokio::time::Instant::now();
    while handled.delivered.values().map(Vec::len).sum::<usize>() < records.len() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not come to an end");
        if let Some(more) = unscheduled.next() {
            outbox.schedule(more).await;
        }
        let due = outbox.due().await;
        worker.settle_all(handled.handle_all(&due, &place)).await;
        let partitions: BTreeSet<_> = records.iter().map(|record| record.partition).collect();
        let partitions: Vec<_> = partitions.into_iter().collect();
        let pending = outbox.store.fetch_by_partition(&partitions, Pick::new(&[], 50)).await.unwrap();
        worker.settle_all(handled.handle_all(&pending, &place)).await;
    }
    assert_eq!(handled.failed_once.len(), 30);
    for (key, delivered) in &handled.delivered {
        let places: Vec<usize> = delivered.iter().map(|event| place[event]).collect();
        assert!(places.is_sorted(), "{key} was delivered out of order: {places:?}");
        assert_eq!(delivered.len(), records.len() / KEYS, "{key}");
    }
    assert!(outbox.pending().await.is_empty() && outbox.stops().await.is_empty());
    assert!(outbox.store.counts().await.unwrap().records.iter().all(|(_, count)| *count == 0));
}
