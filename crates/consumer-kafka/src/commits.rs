//! Commits: one at a time, from a thread of their own.
//!
//! librdkafka keeps a commit that the brokers cannot take yet and sends it again later, with its old offsets. A later
//! commit may have succeeded by then, and is taken back. So no commit begins before the one before it has ended.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::{KafkaResult, RDKafkaErrorCode as Code},
};
use tokio::time::Instant;

use crate::source::{Client, Place};

/// The pause between two commits of what is finished.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How long a commit is tried that the brokers cannot take now, and the pause between two tries. One try may take the
/// session timeout.
const COMMIT_WITHIN: Duration = Duration::from_secs(10);
const COMMIT_PAUSE: Duration = Duration::from_millis(200);

/// Only the holder of the guard may commit.
#[derive(Default)]
pub(crate) struct Turn(Mutex<()>);

impl Turn {
    fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client in use. Replaced when the client is opened again.
#[derive(Clone)]
pub(crate) struct InUse(Arc<Mutex<Arc<Client>>>);

impl InUse {
    pub(crate) fn new(client: &Arc<Client>) -> Self {
        Self(Arc::new(Mutex::new(Arc::clone(client))))
    }

    pub(crate) fn replace(&self, client: &Arc<Client>) {
        let before = std::mem::replace(&mut *self.client(), Arc::clone(client));
        // The last holder closes it, which takes a moment: not under the lock.
        drop(before);
    }

    fn client(&self) -> MutexGuard<'_, Arc<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running thread.
pub(crate) struct Commits {
    /// Nothing is sent: the thread ends when this is dropped.
    ends: mpsc::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Commits {
    pub(crate) fn start(client: InUse) -> io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let commits = move || {
            let mut fails = false;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(COMMIT_EVERY) {
                let client = Arc::clone(&client.client());
                let _turn = client.context().turn.take();
                let failed = client.commit_consumer_state(CommitMode::Sync).err();
                let failed = failed.filter(|error| error.rdkafka_error_code() != Some(Code::NoOffset));
                // One line for an outage.
                if let Some(error) = failed.as_ref().filter(|_| !fails) {
                    tracing::warn!(
                        target: "keylane_consumer", %error, "offsets were not committed: it is tried again every second"
                    );
                }
                fails = failed.is_some();
            }
            let client = Arc::clone(&client.client());
            patiently(&client, || client.commit_consumer_state(CommitMode::Sync));
        };
        let thread = thread::Builder::new().name("kafka-commits".to_owned()).spawn(commits)?;
        Ok(Self { ends, thread })
    }

    /// Commits what is finished, and ends the thread.
    pub(crate) fn end(self) {
        drop(self.ends);
        let _ = self.thread.join();
    }
}

/// Commits these offsets and waits for the broker.
pub(crate) fn commit(client: &Client, finished: Vec<(Place, i64)>) {
    let mut offsets = TopicPartitionList::new();
    for ((topic, partition), next) in finished {
        // It fails only for an invalid offset.
        let _ = offsets.add_partition_offset(&topic, partition, Offset::Offset(next));
    }
    if offsets.count() > 0 {
        patiently(client, || client.commit(&offsets, CommitMode::Sync));
    }
}

/// Repeats a commit while the brokers cannot take it: a broker that has just started loads its offsets first.
fn patiently(client: &Client, commit: impl Fn() -> KafkaResult<()>) {
    let (_turn, began) = (client.context().turn.take(), Instant::now());
    while let Err(error) = commit() {
        match error.rdkafka_error_code() {
            Some(Code::NoOffset) => return,
            Some(code) if passes(code) && began.elapsed() < COMMIT_WITHIN => {
                thread::park_timeout(COMMIT_PAUSE)
            }
            _ => {
                tracing::warn!(
                    target: "keylane_consumer", %error, "offsets were not committed: their messages come again"
                );
                return;
            }
        }
    }
}

/// Whether the error ends by itself. A partition that has gone to another consumer does not come back.
fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::WaitingForCoordinator
            | Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::NetworkException
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
    )
}
