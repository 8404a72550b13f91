//! The task that connects all parts: messages come in, runs go out, offsets follow the finished messages.

mod drain;
mod settle;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, mpsc as sync_mpsc},
    time::Duration,
};

use keylane::HandlerError;
use rdkafka::{Message as _, message::OwnedMessage};
use tokio::{
    sync::{oneshot, watch},
    task::{Id, JoinError, JoinSet},
    time::Instant,
};

use self::drain::Drain;
use crate::{
    budget::unhindered,
    config::ConsumerConfig,
    consumer::ShutdownReport,
    dead::DeadLetters,
    handler::{Call, Execute, Outcome},
    message::Message,
    partition::{LaneKey, Partition},
    shares::Shares,
    source::{Client, Event, PartitionLag, Place, Source},
};

pub(crate) struct Lane {
    place: Place,
    epoch: u64,
    key: LaneKey,
}

/// The messages of a run, lane by lane.
type Items = Vec<(Arc<Lane>, Vec<Arc<Message>>)>;

/// The report of a run at its end.
enum Report {
    Ran(Vec<Outcome>),
    /// Whether the dead letter was sent. If not, the error of the handler comes back.
    Dead(Result<(), HandlerError>),
}

pub(crate) struct Pump {
    pub(crate) config: ConsumerConfig,
    pub(crate) call: Arc<Call>,
    pub(crate) topics: HashMap<Arc<str>, Arc<dyn Execute>>,
    pub(crate) dead: Option<DeadLetters>,
    pub(crate) source: Source,
    pub(crate) lags: watch::Sender<Vec<PartitionLag>>,
    partitions: HashMap<Place, Partition<Message>>,
    /// The next offset of each partition: all messages before it are finished.
    finished: HashMap<Place, i64>,
    paused: HashSet<Place>,
    /// The lanes that are ready, and what each topic has.
    shares: Shares<Arc<Lane>>,
    /// Lanes that wait for an attempt. The number distinguishes equal times.
    waiting: BTreeMap<(Instant, u64), Arc<Lane>>,
    /// The time since which the target of a lane's first message has been away.
    away: HashMap<(Place, i64), Instant>,
    runs: JoinSet<Report>,
    under_way: HashMap<Id, (Items, tokio::task::AbortHandle)>,
    drains: Vec<Drain>,
    number: u64,
}

impl Pump {
    pub(crate) fn new(
        config: ConsumerConfig,
        topics: HashMap<Arc<str>, Arc<dyn Execute>>,
        dead: Option<DeadLetters>,
        source: Source,
        lags: watch::Sender<Vec<PartitionLag>>,
    ) -> Self {
        let limits = (config.concurrency, config.queue_bytes);
        let shares = Shares::new(topics.keys().cloned(), limits);
        let call = Arc::new(Call { group: config.group.clone(), timeout: config.handler_timeout });
        Self {
            config,
            call,
            topics,
            dead,
            source,
            lags,
            partitions: HashMap::new(),
            finished: HashMap::new(),
            paused: HashSet::new(),
            shares,
            waiting: BTreeMap::new(),
            away: HashMap::new(),
            runs: JoinSet::new(),
            under_way: HashMap::new(),
            drains: Vec::new(),
            number: 0,
        }
    }

    /// Runs until the stop.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> ShutdownReport {
        loop {
            self.wake_due();
            self.start_runs();
            self.end_drains();
            let due = self.next_deadline();
            tokio::select! {
                event = self.source.events.recv() => match event {
                    Some(event) => self.take_events(event),
                    None => break,
                },
                Some(ended) = self.runs.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep_until(due) => {}
                _ = &mut stop => break,
            }
        }
        self.stop().await
    }

    fn take_events(&mut self, first: Event) {
        let mut next = Some(first);
        while let Some(event) = next {
            match event {
                Event::Message(message) => self.receive(message),
                Event::Revoked { places, lost, drained } => self.revoke(&places, lost, drained),
                Event::Lag(lags) => drop(self.lags.send_replace(lags)),
                Event::Reopened { client, before } => self.reopened(client, &before),
            }
            next = self.source.events.try_recv().ok();
        }
    }

    fn reopened(&mut self, client: Arc<Client>, before: &sync_mpsc::SyncSender<Arc<Client>>) {
        // The thread waits for it.
        let _ = before.send(std::mem::replace(&mut self.source.client, client));
    }

    fn receive(&mut self, raw: OwnedMessage) {
        let Some((topic, _)) = self.topics.get_key_value(raw.topic()) else { return };
        let place = (Arc::clone(topic), raw.partition());
        let key = match raw.key() {
            Some(key) => LaneKey::Key(key.to_vec()),
            None => LaneKey::Alone(raw.offset()),
        };
        let message = Arc::new(Message::read(topic, raw));
        let (offset, size) = (message.offset(), message.size());
        let number = &mut self.number;
        let partition = self.partitions.entry(place.clone()).or_insert_with(|| {
            *number += 1;
            Partition::new(*number)
        });
        let Some(ready) = partition.receive(offset, &key, message) else { return };
        self.shares.receive(&place.0, size);
        if ready {
            let epoch = partition.epoch;
            self.shares.push(&place.0, Arc::new(Lane { place: place.clone(), epoch, key }));
        }
        self.throttle(&place);
    }

    /// Gives ready lanes to handlers, up to the most calls at once.
    fn start_runs(&mut self) {
        while let Some((topic, lane)) = self.shares.next() {
            let Some(execute) = self.topics.get(&topic).cloned() else { continue };
            let room = if execute.batches() { self.config.batch_size } else { 1 };
            let mut items: Items = Vec::new();
            let mut count = 0;
            let mut next = Some(lane);
            while let Some(lane) = next {
                let taken = match self.partition(&lane) {
                    Some(partition) => partition.take(&lane.key, room - count),
                    None => Vec::new(),
                };
                count += taken.len();
                if !taken.is_empty() {
                    items.push((lane, taken));
                }
                next = if count < room { self.shares.next_of(&topic) } else { None };
            }
            if items.is_empty() {
                continue;
            }
            let messages: Vec<Arc<Message>> =
                items.iter().flat_map(|(_, taken)| taken.iter().cloned()).collect();
            let call = Arc::clone(&self.call);
            self.spawn(items, async move { Report::Ran(execute.run(&messages, &call).await) });
        }
    }

    /// The partition of a lane, unless the partition is gone.
    fn partition(&mut self, lane: &Lane) -> Option<&mut Partition<Message>> {
        self.partitions.get_mut(&lane.place).filter(|partition| partition.epoch == lane.epoch)
    }

    /// Counts messages that have left the memory.
    fn forget(&mut self, messages: &[Arc<Message>]) {
        messages.iter().for_each(|message| self.shares.release(message.topic(), message.size()));
    }

    fn spawn(&mut self, items: Items, run: impl Future<Output = Report> + Send + 'static) {
        if let Some((lane, _)) = items.first() {
            self.shares.begin(&lane.place.0);
        }
        let handle = self.runs.spawn(unhindered(run));
        self.under_way.insert(handle.id(), (items, handle));
    }

    fn ended(&mut self, ended: Result<(Id, Report), JoinError>) {
        let (id, report) = match ended {
            Ok((id, report)) => (id, Some(report)),
            Err(error) => (error.id(), None),
        };
        let Some((items, _)) = self.under_way.remove(&id) else { return };
        if let Some((lane, _)) = items.first() {
            self.shares.end(&lane.place.0);
        }
        match report {
            Some(Report::Ran(outcomes)) => {
                let mut outcomes = outcomes.into_iter();
                for (lane, messages) in items {
                    let outcomes = outcomes.by_ref().take(messages.len()).collect();
                    self.settle(&lane, messages, outcomes);
                }
            }
            Some(Report::Dead(sent)) => {
                for (lane, messages) in items {
                    self.buried(&lane, messages, &sent);
                }
            }
            // The run was dropped, because its partition goes away or the service ends.
            None => {
                for (lane, messages) in items {
                    let outcomes = messages.iter().map(|_| Outcome::NotTried).collect();
                    self.settle(&lane, messages, outcomes);
                }
            }
        }
    }

    fn wake_due(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 <= now) {
            let lane = entry.remove();
            if self.partition(&lane).is_some_and(|partition| partition.wake(&lane.key)) {
                self.shares.push(&lane.place.0.clone(), lane);
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let waiting = self.waiting.keys().next().map(|(at, _)| *at);
        let drains = self.drains.iter().map(|drain| drain.deadline).min();
        let far = Instant::now() + Duration::from_secs(60);
        [waiting, drains].into_iter().flatten().min().unwrap_or(far).min(far)
    }
}
