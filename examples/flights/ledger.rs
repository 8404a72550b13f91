//! The ledger: what really happened, written by the handlers into plain files, one for each replica.
//! The outbox knows nothing of it; the verdict knows nothing else.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use keylane::{Delivery, Observer, Signal};
use keylane_checker::{CallKind, Called, Event, Journal, OpenCall};
use rustix::time::{ClockId, clock_gettime};

use crate::settings::name_of;

/// Nanoseconds of a clock that all processes of this machine share and that is never set.
pub(crate) type Nanos = u64;

/// The name of a lapsed lease among the faults of a history.
pub(crate) const LAPSE: &str = "lapse";

pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The writing end. What is written survives a `kill -9` of the process.
#[derive(Clone)]
pub(crate) struct Ledger {
    journal: Arc<Journal>,
    replica: String,
}

impl Ledger {
    pub(crate) fn open(dir: &Path, replica: usize) -> io::Result<Self> {
        let name = name_of(replica);
        let journal = Journal::open(&file_of(dir, replica), name.clone(), now)?;
        Ok(Self { journal: Arc::new(journal), replica: name })
    }

    /// Enters that a handler is called.
    pub(crate) fn begin(&self, kind: CallKind, delivery: &Delivery) -> io::Result<OpenCall<'_>> {
        let called = Called {
            id: delivery.id,
            event: delivery.event_id,
            handler: delivery.handler.to_string(),
            key: delivery.key.to_string(),
            partition: delivery.partition.number().into(),
            generation: delivery.generation.0,
            attempt: delivery.attempt,
        };
        self.journal.begin(self.replica.clone(), kind, vec![called])
    }
}

impl Observer for Ledger {
    /// Enters that no heartbeat was acknowledged for the length of the lease, as on a slow disk. What was called
    /// before may be called again. The fault is over at once, because nothing is called before the next heartbeat.
    fn on(&self, signal: &Signal) {
        if matches!(signal, Signal::LeaseLapsed) {
            // Without these lines a repeated call has no reason, and the verdict is bad.
            let _ = self.journal.struck(LAPSE, &self.replica);
        }
    }
}

/// The reading end: follows one replica's file.
pub(crate) struct Follower {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

impl Follower {
    pub(crate) fn new(dir: &Path, replica: usize) -> Self {
        Self { path: file_of(dir, replica), file: None, rest: Vec::new() }
    }

    /// The lines that have been added since the last call.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Event>> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            };
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.rest)?;
        }
        let complete = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = self.rest.split_off(complete);
        let bytes = std::mem::replace(&mut self.rest, rest);
        serde_json::Deserializer::from_slice(&bytes)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(io::Error::other)
    }
}

/// The file of a replica; number 0 is that of the producer.
pub(crate) fn file_of(dir: &Path, replica: usize) -> PathBuf {
    dir.join(format!("ledger-{replica}.jsonl"))
}
