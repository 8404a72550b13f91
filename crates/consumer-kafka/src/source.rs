//! The client. A separate thread polls it, so that a rebalance can wait for calls under way, and no handler
//! keeps the client from the broker.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc as sync_mpsc,
    },
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext, Statistics, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance},
    error::{KafkaError, KafkaResult},
    message::OwnedMessage,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    commits::{Commits, InUse, Turn, commit},
    config::{ConfigError, ConsumerConfig},
    outage::{Line, Outage, is_away},
};

/// The most messages between the thread and the task.
const EVENTS: usize = 512;
const POLL: Duration = Duration::from_millis(100);
/// The reports without any broker after which the client is opened again.
const REPORTS_OF_NOBODY: u32 = 2;
/// The longest wait of a shutdown for its last commit and for the end of the client.
const END_WITHIN: Duration = Duration::from_secs(20);

/// The lag of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The number of messages that are not finished, from the client's last report. Reports come every 5 s.
    pub messages: i64,
}

/// A partition of a topic.
pub(crate) type Place = (Arc<str>, i32);

/// An event from the thread.
pub(crate) enum Event {
    Message(OwnedMessage),
    /// Partitions go to another consumer. The thread waits for the answer: the offsets to commit.
    Revoked {
        places: Vec<(String, i32)>,
        lost: bool,
        drained: sync_mpsc::SyncSender<Vec<(Place, i64)>>,
    },
    Lag(Vec<PartitionLag>),
    /// Another client takes over, without partitions at first. The thread waits for the one before, to close it.
    Reopened {
        client: Arc<Client>,
        before: sync_mpsc::SyncSender<Arc<Client>>,
    },
}

pub(crate) type Client = BaseConsumer<Context>;

pub(crate) struct Context {
    events: mpsc::Sender<Event>,
    /// Whether a group that has finished nothing yet begins with the oldest message.
    from_start: bool,
    /// The number of reports in a row in which the client knew no broker. A client that is told of no brokers, as by a
    /// broker that has just started, forgets all of them and never connects again (librdkafka, issue 5301).
    reports_of_nobody: AtomicU32,
    /// Written by each failure and each report.
    outage: Mutex<Outage>,
    /// Taken for each commit of this client.
    pub(crate) turn: Turn,
}

impl Context {
    /// The finished messages of these partitions, when their calls have ended. `None` if the task has ended.
    fn hand_over(&self, places: Vec<(String, i32)>, lost: bool) -> Option<Vec<(Place, i64)>> {
        let (drained, answer) = sync_mpsc::sync_channel(1);
        self.events.blocking_send(Event::Revoked { places, lost, drained }).ok()?;
        answer.recv().ok()
    }

    /// Logs a failure of the client. The client goes on by itself.
    fn failed(&self, error: &KafkaError, reason: &str) {
        if !error.rdkafka_error_code().is_some_and(is_away) {
            return tracing::warn!(target: "keylane_consumer", %error, reason, "the kafka client reports a problem");
        }
        match self.outage(|outage| outage.failed(Instant::now())) {
            Some(Line::Begins) => tracing::warn!(
                target: "keylane_consumer", %error, reason,
                "a broker is away; the client tries again, with a line per minute"
            ),
            Some(Line::GoesOn { lasted, failures }) => tracing::warn!(
                target: "keylane_consumer", %error, reason, ?lasted, failures,
                "a broker is still away; the client tries again"
            ),
            Some(Line::Ends { .. }) | None => tracing::debug!(target: "keylane_consumer", %error, reason),
        }
    }

    fn outage(&self, changes: impl FnOnce(&mut Outage) -> Option<Line>) -> Option<Line> {
        changes(&mut self.outage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The client reports whether it knows a broker, and whether it is connected to one.
    fn reported(&self, knows: bool, connected: bool) {
        match knows {
            true => self.reports_of_nobody.store(0, Relaxed),
            false => drop(self.reports_of_nobody.fetch_add(1, Relaxed)),
        }
        if let Some(Line::Ends { lasted, failures }) = self.outage(|outage| outage.reported(connected)) {
            tracing::warn!(target: "keylane_consumer", ?lasted, failures, "the brokers are there again");
        }
    }
}

impl ClientContext for Context {
    fn stats(&self, statistics: Statistics) {
        let mut states = (statistics.brokers.values())
            .filter(|broker| !matches!(broker.source.as_str(), "internal" | "logical"))
            .map(|broker| broker.state.as_str());
        self.reported(states.clone().next().is_some(), states.any(|state| state == "UP"));
        let mut lags = Vec::new();
        for (topic, of_topic) in statistics.topics {
            for (partition, found) in of_topic.partitions {
                // Counts from the last finished offset, or from the last committed one, or else from the
                // beginning. A number below zero is unknown.
                let unfinished = (self.from_start && found.lo_offset >= 0)
                    .then(|| found.ls_offset.saturating_sub(found.lo_offset));
                let mut known = [found.consumer_lag_stored, found.consumer_lag].into_iter().chain(unfinished);
                let Some(messages) = known.find(|messages| *messages >= 0) else { continue };
                if partition >= 0 && found.desired {
                    lags.push(PartitionLag { topic: topic.clone(), partition, messages });
                }
            }
        }
        lags.sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
        // The next report comes in 5 s anyway.
        let _ = self.events.try_send(Event::Lag(lags));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.failed(&error, reason);
    }
}

impl ConsumerContext for Context {
    /// Waits for the calls under way in these partitions, and commits their finished messages.
    fn pre_rebalance(&self, client: &Client, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(revoked) = rebalance else { return };
        let places = places_of(revoked);
        if places.is_empty() {
            return;
        }
        let lost = client.assignment_lost();
        tracing::info!(target: "keylane_consumer", partitions = places.len(), lost, "partitions are revoked");
        let Some(finished) = self.hand_over(places, lost) else { return };
        if !lost {
            commit(client, finished);
        }
    }
}

fn places_of(list: &TopicPartitionList) -> Vec<(String, i32)> {
    list.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect()
}

/// The running threads.
pub(crate) struct Source {
    pub(crate) client: Arc<Client>,
    pub(crate) events: mpsc::Receiver<Event>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
    commits: Commits,
}

impl Source {
    pub(crate) fn start(config: &ConsumerConfig, topics: &[&str]) -> Result<Self, ConfigError> {
        let (sender, events) = mpsc::channel(EVENTS);
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        let opener =
            Opener { config: config.consumer(), from_start: config.from_start, topics, events: sender };
        let client = Arc::new(opener.open().map_err(|error| ConfigError::Client(error.to_string()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let in_use = InUse::new(&client);
        let commits = Commits::start(in_use.clone()).map_err(ConfigError::Thread)?;
        let (polled, stopped) = (Arc::clone(&client), Arc::clone(&stop));
        let poll = move || poll(&opener, polled, &in_use, &stopped);
        let thread = std::thread::Builder::new().name("kafka-consumer".to_owned()).spawn(poll);
        Ok(Self { client, events, stop, thread: thread.map_err(ConfigError::Thread)?, commits })
    }

    /// Commits what is finished, and leaves the group. If the brokers are away, gives up after [`END_WITHIN`]. All
    /// partitions are drained by then.
    pub(crate) async fn end(self) {
        self.stop.store(true, Relaxed);
        let Self { client, events, thread, commits, .. } = self;
        // The thread may be about to send an event.
        drop(events);
        let (ends, ended) = oneshot::channel();
        let close = move || {
            let _ = thread.join();
            commits.end();
            drop(client);
            let _ = ends.send(());
        };
        // Not a thread of the runtime: the end of the runtime would wait for it.
        let spawned = std::thread::Builder::new().name("kafka-close".to_owned()).spawn(close);
        if spawned.is_err() || tokio::time::timeout(END_WITHIN, ended).await.is_err() {
            tracing::warn!(target: "keylane_consumer", "the brokers are away: offsets may not be committed");
        }
    }
}

/// Opens the clients of a consumer, one after another.
struct Opener {
    config: ClientConfig,
    from_start: bool,
    topics: Vec<String>,
    events: mpsc::Sender<Event>,
}

impl Opener {
    fn open(&self) -> KafkaResult<Client> {
        let context = Context {
            events: self.events.clone(),
            from_start: self.from_start,
            reports_of_nobody: AtomicU32::new(0),
            outage: Mutex::default(),
            turn: Turn::default(),
        };
        let client: Client = self.config.create_with_context(context)?;
        client.subscribe(&self.topics.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(client)
    }

    /// Opens a client in the place of one that knows no broker, once the calls of its partitions have ended. `None` if
    /// the task has ended.
    fn reopen(&self, before: Arc<Client>) -> Option<Arc<Client>> {
        tracing::warn!(target: "keylane_consumer", "the kafka client knows no broker any more: it is opened again");
        let places = before.assignment().as_ref().map(places_of).unwrap_or_default();
        before.context().hand_over(places, true)?;
        let client = match self.open() {
            Ok(client) => Arc::new(client),
            Err(error) => {
                tracing::warn!(target: "keylane_consumer", %error, "the kafka client was not opened again");
                before.context().reports_of_nobody.store(0, Relaxed);
                return Some(before);
            }
        };
        let (sender, held) = sync_mpsc::sync_channel(1);
        let reopened = Event::Reopened { client: Arc::clone(&client), before: sender };
        self.events.blocking_send(reopened).ok()?;
        // The last holder closes the client, which takes a moment and would block the task.
        drop(held.recv());
        drop(before);
        Some(client)
    }
}

fn poll(opener: &Opener, mut client: Arc<Client>, in_use: &InUse, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        if client.context().reports_of_nobody.load(Relaxed) >= REPORTS_OF_NOBODY {
            let Some(reopened) = opener.reopen(client) else { return };
            client = reopened;
            in_use.replace(&client);
        }
        match client.poll(POLL) {
            Some(Ok(message)) => {
                let told = opener.events.blocking_send(Event::Message(message.detach()));
                if told.is_err() {
                    return;
                }
            }
            Some(Err(error)) => {
                client.context().failed(&error, "a poll has failed");
                // The pause keeps a failure that returns at once from spinning.
                std::thread::park_timeout(POLL);
            }
            None => {}
        }
    }
}
