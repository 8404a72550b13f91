//! One store under the commands: its workers, records and open transactions, under names that are the same on
//! every store.

use std::{sync::Arc, time::Duration};

use keylane::{
    Record, RecordId,
    admin::InstanceId,
    database::Database,
    handler::Route,
    inner::{Cancel, Deadline, Due, Handlers, IdScan, Named, NewRecord, Pick, Store, StoreError},
    partition::{Partition, PartitionSet},
    rules::horizon::Server,
};
use uuid::Uuid;

use super::{
    command::{Command, DueTime, Event, TRANSACTIONS, WORKERS},
    store::{Isolation, Likened},
};
use crate::{
    outbox::{ALL, Outbox, neighbours, record},
    target::{Target, Tx},
};

pub(super) const HANDLERS: [&str; 2] = ["bookkeeper", "mail"];
const HOUR: Duration = Duration::from_secs(3600);

/// A record that was scheduled.
pub(super) struct Known {
    event: Uuid,
    pub(super) key: usize,
    pub(super) handler: usize,
    dedup_key: Option<usize>,
    drawn: RecordId,
    /// The id, once the transaction has committed.
    pub(super) id: Option<RecordId>,
    pub(super) failures: u32,
    /// The token of its last claim.
    pub(super) token: i64,
}

/// A transaction of a user.
struct Open<T: Target> {
    tx: Tx<T>,
    records: Vec<usize>,
    /// The dedup keys that the transaction has inserted or freed.
    dedup_keys: Vec<usize>,
    /// The keys of which the transaction has cancelled records.
    cancelled: Vec<usize>,
    /// What was committed when the transaction first looked for a record.
    found: Option<Vec<usize>>,
}

pub(super) struct Worker {
    pub(super) id: InstanceId,
    pub(super) counter: i64,
    pub(super) server: Server,
    pub(super) beat: i64,
    pub(super) is_live: bool,
}

pub(super) struct World<'a, T: Likened> {
    outbox: &'a Outbox<T>,
    pub(super) store: Arc<dyn Store>,
    isolation: Isolation,
    keys: [String; 3],
    open: [Option<Open<T>>; TRANSACTIONS],
    pub(super) known: Vec<Known>,
    drawn: RecordId,
    /// All workers that ever joined. A command names the last one of a place.
    pub(super) workers: Vec<Worker>,
    pub(super) places: [Option<usize>; WORKERS],
}

impl<'a, T: Likened> World<'a, T> {
    pub(super) fn new(outbox: &'a Outbox<T>, store: Arc<dyn Store>, isolation: Isolation) -> Self {
        let (first, second) = neighbours();
        Self {
            outbox,
            store,
            isolation,
            keys: [first, second, "order-1".to_owned()],
            open: [const { None }; TRANSACTIONS],
            known: Vec::new(),
            drawn: 0,
            workers: Vec::new(),
            places: [None; WORKERS],
        }
    }

    /// Runs a command. Returns its result under names that are the same on every store.
    pub(super) async fn run(&mut self, command: &Command) -> String {
        match command {
            Command::Schedule { transaction, events } => {
                self.schedule(transaction % TRANSACTIONS, events).await
            }
            Command::Cancel { transaction, record, by_dedup_key } => {
                self.cancel(transaction % TRANSACTIONS, *record, *by_dedup_key).await
            }
            Command::End { transaction, commit } => self.end_one(transaction % TRANSACTIONS, *commit).await,
            Command::FetchByPartition { keys, limit, skip, handlers } => {
                let mut partitions: Vec<Partition> = keys.iter().map(|key| self.partition(*key)).collect();
                let mut seen = PartitionSet::EMPTY;
                partitions.retain(|partition| {
                    !seen.contains(*partition) && {
                        seen.insert(*partition);
                        true
                    }
                });
                let (skip, handlers) = (self.ids(skip), of_handlers(*handlers));
                let pick = Pick { skip: &skip, handlers: &handlers, limit: *limit };
                let found = self.store.fetch_by_partition(&partitions, pick).await;
                self.records(found)
            }
            Command::Scan { skip, handlers } => {
                let (skip, handlers) = (self.ids(skip), of_handlers(*handlers));
                let pick = Pick { skip: &skip, handlers: &handlers, limit: ALL };
                let (partitions, reach) = (PartitionSet::ALL, i64::MAX - 1);
                let scan =
                    IdScan { partitions, from: 1, reach, within: &[], list: 0, open: &[], ahead: None, pick };
                let found = self.store.scan_by_id(scan).await;
                self.records(found.map(|(records, _)| records))
            }
            Command::FetchDue { skip, handlers } => {
                let (skip, handlers) = (self.ids(skip), of_handlers(*handlers));
                let pick = Pick { skip: &skip, handlers: &handlers, limit: ALL };
                let found = self.store.fetch_due(PartitionSet::ALL, pick).await.map(|(mut due, changes)| {
                    // Times that are equal on one clock may differ on another.
                    due.sort_by_key(|record| record.delivery.id);
                    (due, changes)
                });
                let changes = found.as_ref().map(|(_, changes)| *changes).ok();
                format!("{} {changes:?}", self.records(found.map(|(due, _)| due)))
            }
            Command::FindHead { key } => {
                let of = [self.partition(*key)].into_iter().collect();
                let head = self.store.find_head(of, &[]).await.unwrap();
                format!("{:?}", head.first.map(|id| self.name(id)))
            }
            Command::Settle { worker, outcomes, reply } => self.settle(*worker, outcomes, *reply).await,
            Command::TrackCall { .. } | Command::EndTracking { .. } | Command::Calm { .. } => {
                self.track(command).await
            }
            Command::Repair { records, how } => self.repair(records, how).await,
            Command::CopyToDeadLetters { .. } | Command::TakeDeadLetters { .. } => {
                self.dead_letters(command).await
            }
            Command::Publish { key, handler } => {
                let record_type = format!("type-{}", key % 3);
                let handler = HANDLERS[handler % HANDLERS.len()].to_owned();
                told(self.store.publish_routes(&[Route { record_type, handler }]).await)
            }
            Command::Retire { handler } => {
                told(self.store.retire_handler(HANDLERS[handler % HANDLERS.len()]).await)
            }
            Command::Purge { instances } => self.purge(*instances).await,
            _ => self.membership(command).await,
        }
    }

    /// Rolls open transactions back. Returns the content of the tables.
    pub(super) async fn end(mut self) -> Vec<String> {
        for place in 0..TRANSACTIONS {
            self.end_one(place, false).await;
        }
        self.tables().await
    }

    async fn open(&mut self, place: usize) -> &mut Open<T> {
        if self.open[place].is_none() {
            let tx = T::begin(self.outbox).await;
            let (records, dedup_keys, cancelled) = (Vec::new(), Vec::new(), Vec::new());
            let open = Open { tx, records, dedup_keys, cancelled, found: None };
            self.open[place] = Some(open);
        }
        self.open[place].as_mut().unwrap()
    }

    /// The entries of the transactions in the other places.
    fn others<'s>(
        &'s self,
        place: usize,
        what: impl Fn(&'s Open<T>) -> &'s [usize] + 's,
    ) -> impl Iterator<Item = usize> + 's {
        let others = self.open.iter().enumerate().filter(move |(other, _)| *other != place);
        others.filter_map(|(_, open)| open.as_ref()).flat_map(what).copied()
    }

    async fn schedule(&mut self, place: usize, events: &[Event]) -> String {
        let mut answers = Vec::new();
        for event in events {
            let dedup_key = event.dedup_key.map(|key| key % 3);
            if let Some(key) = dedup_key {
                if self.others(place, |open| &open.dedup_keys).any(|other| other == key) {
                    answers.push("would wait".to_owned());
                    continue;
                }
                let (producer, name) = (Arc::clone(&self.outbox.producer), format!("dedup-{key}"));
                let open = self.open(place).await;
                let inserted = T::Db::insert_dedup_key(&mut open.tx, &producer, &name).await.unwrap();
                open.dedup_keys.push(key);
                if !inserted {
                    answers.push("duplicate".to_owned());
                    continue;
                }
            }
            let number = self.known.len();
            let known = Known {
                event: Uuid::from_u128(number as u128 + 1),
                key: event.key % self.keys.len(),
                handler: event.handler % HANDLERS.len(),
                dedup_key: dedup_key.filter(|_| event.due == DueTime::InAnHour),
                drawn: self.drawn + 1,
                id: None,
                failures: 0,
                token: 0,
            };
            let new = self.new_record(&known, event.due);
            let outbox = self.outbox;
            let open = self.open(place).await;
            outbox.insert(&mut open.tx, &[new]).await;
            open.records.push(number);
            self.drawn += 1;
            answers.push(format!("r{number}"));
            self.known.push(known);
        }
        if !self.isolation.crossing {
            answers.push(self.end_one(place, true).await);
        }
        answers.join(" ")
    }

    fn new_record(&self, known: &Known, due: DueTime) -> NewRecord {
        NewRecord {
            event_id: known.event,
            handler: HANDLERS[known.handler].into(),
            due: match due {
                DueTime::Now => Due::Now,
                DueTime::AtOnce => Due::After(Duration::ZERO),
                DueTime::InAnHour => Due::After(HOUR),
            },
            deadline: (known.key == 2).then_some(Deadline::After(2 * HOUR)),
            dedup_key: known.dedup_key.map(|key| format!("dedup-{key}")),
            ..record(&self.keys[known.key])
        }
    }

    async fn cancel(&mut self, place: usize, record: usize, by_dedup_key: bool) -> String {
        let Some((number, known)) = self.pick(record) else { return "nobody".to_owned() };
        let (key, dedup_key) = (known.key, known.dedup_key);
        let named = match dedup_key {
            Some(dedup_key) if by_dedup_key => Named::DedupKey(format!("dedup-{dedup_key}")),
            _ => Named::Event(known.event),
        };
        // Two transactions that cancel wait for each other, and so do one that inserts and one that frees the
        // same dedup key.
        let waits = self.others(place, |open| &open.cancelled).any(|other| other == key)
            || self.others(place, |open| &open.records).any(|other| self.known[other].key == key)
            || dedup_key
                .is_some_and(|own| self.others(place, |open| &open.dedup_keys).any(|other| other == own));
        if waits {
            return "would wait".to_owned();
        }
        let text = self.keys[key].clone();
        let cancel = Cancel { partition: Partition::of(&text), key: text, named };
        let producer = Arc::clone(&self.outbox.producer);
        let (committed, snapshots) = (self.committed().collect(), self.isolation.snapshots);
        let open = self.open(place).await;
        if !open.found.get_or_insert(committed).contains(&number) && snapshots {
            return "hidden by its snapshot".to_owned();
        }
        let cancelled = T::Db::cancel(&mut open.tx, &producer, &cancel).await.unwrap();
        open.cancelled.push(key);
        open.dedup_keys.extend(dedup_key);
        let ended = if self.isolation.crossing { String::new() } else { self.end_one(place, true).await };
        format!("r{number}: {cancelled} {ended}")
    }

    async fn end_one(&mut self, place: usize, commit: bool) -> String {
        let Some(open) = self.open[place].take() else { return "none is open".to_owned() };
        if !commit {
            T::roll_back(open.tx).await;
            return "rolled back".to_owned();
        }
        self.outbox.commit(open.tx).await;
        for number in open.records {
            let known = &mut self.known[number];
            known.id = Some(T::id_of(self.outbox, known.event, known.drawn).await);
        }
        "committed".to_owned()
    }
}

/// Names for values that differ between stores.
impl<T: Likened> World<'_, T> {
    /// The partitions of all keys.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        vec![Partition::of(&self.keys[0]), Partition::of(&self.keys[2])]
    }

    pub(super) fn partition(&self, key: usize) -> Partition {
        Partition::of(&self.keys[key % self.keys.len()])
    }

    /// A committed record and its number.
    pub(super) fn pick(&self, number: usize) -> Option<(usize, &Known)> {
        let number = self.committed().nth(number.checked_rem(self.committed().count())?)?;
        Some((number, &self.known[number]))
    }

    /// The records whose transactions have committed.
    fn committed(&self) -> impl Iterator<Item = usize> {
        (0..self.known.len()).filter(|number| self.known[*number].id.is_some())
    }

    /// The ids of these records, without those that an open transaction is cancelling, because they are
    /// locked.
    pub(super) fn unlocked(&self, numbers: &[usize]) -> Vec<(usize, RecordId)> {
        let mut picked: Vec<_> = numbers.iter().filter_map(|number| self.pick(*number)).collect();
        picked.retain(|(_, known)| {
            !self.others(TRANSACTIONS, |open| &open.cancelled).any(|key| key == known.key)
        });
        let mut picked: Vec<_> =
            picked.into_iter().filter_map(|(number, known)| Some((number, known.id?))).collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    /// Whether an open transaction has inserted or freed a dedup key.
    pub(super) fn locks_dedup_keys(&self) -> bool {
        self.others(TRANSACTIONS, |open| &open.dedup_keys).next().is_some()
    }

    fn ids(&self, numbers: &[usize]) -> Vec<RecordId> {
        numbers.iter().filter_map(|number| self.pick(*number)?.1.id).collect()
    }

    /// Adds the records that were scheduled again, as new ones.
    pub(super) async fn schedule_again(&mut self, numbers: &[usize]) {
        for number in numbers {
            let Known { event, key, handler, .. } = self.known[*number];
            self.drawn += 1;
            let id = T::id_of(self.outbox, event, self.drawn).await;
            let drawn = self.drawn;
            let (dedup_key, id, failures, token) = (None, Some(id), 0, 0);
            self.known.push(Known { event, key, handler, dedup_key, drawn, id, failures, token });
        }
    }

    pub(super) fn name(&self, id: RecordId) -> String {
        let number = self.known.iter().rposition(|known| known.id == Some(id));
        number.map_or_else(|| "a stranger".to_owned(), |number| format!("r{number}"))
    }

    pub(super) fn worker_name(&self, id: InstanceId) -> String {
        let number = self.workers.iter().position(|worker| worker.id == id);
        number.map_or_else(|| "a stranger".to_owned(), |number| format!("w{number}"))
    }

    pub(super) fn record(&self, record: &Record) -> String {
        let delivery = &record.delivery;
        let (name, attempt, expires) =
            (self.name(delivery.id), delivery.attempt, delivery.expires_in.is_some());
        let payload = String::from_utf8_lossy(&record.payload);
        format!("{name} {:?} {attempt} {expires} {payload}", record.lane())
    }

    pub(super) fn records(&mut self, found: Result<Vec<Arc<Record>>, StoreError>) -> String {
        let found = match found {
            Ok(found) => found,
            Err(error) => return format!("{:?}", error.class),
        };
        for record in &found {
            if let Some(known) = self.known.iter_mut().find(|known| known.id == Some(record.delivery.id)) {
                known.failures = record.failures();
            }
        }
        found.iter().map(|record| self.record(record)).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn of_handlers(number: usize) -> Handlers {
    match number % 4 {
        0 => Handlers::Only(HANDLERS[1].into()),
        1 => Handlers::Except(vec![HANDLERS[1].into()]),
        _ => Handlers::Every,
    }
}

/// A result without the values that differ between stores.
pub(super) fn told<A: std::fmt::Debug>(answer: Result<A, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?}", error.class),
    }
}
