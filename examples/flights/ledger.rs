//! The ledger: what really happened, written by the handlers into plain files, one for each replica.
//! The outbox knows nothing of it; the verdict knows nothing else.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use keylane::Delivery;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::flights::Flight;

/// What a line says of a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// The bookkeeper was called.
    Begun,
    /// It has entered the flight.
    Done,
    /// It failed and wants to be called again.
    Failed,
    /// It will not have it: the flight was cancelled.
    Refused,
    /// The fallback handler has entered it instead.
    Fallback,
}

impl What {
    /// Whether the flight is in the books now.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Fallback)
    }
}

/// A line of the ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: Micros,
    pub(crate) what: What,
    pub(crate) row: usize,
    pub(crate) aircraft: String,
    pub(crate) turn: usize,
    pub(crate) attempt: u32,
    pub(crate) event_id: Uuid,
}

/// Microseconds of a clock that all processes of this machine share and nobody sets.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// The writing end. What is written survives a `kill -9` of the process.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<File>);

impl Ledger {
    pub(crate) fn open(dir: &Path, replica: usize) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file_of(dir, replica))?;
        Ok(Self(Arc::new(file)))
    }

    /// Appends a line, in one write.
    pub(crate) fn enter(
        &self,
        what: What,
        flight: &Flight,
        delivery: &Delivery,
        attempt: u32,
    ) -> io::Result<()> {
        let line = Line {
            at: now(),
            what,
            row: flight.row,
            aircraft: delivery.key.to_string(),
            turn: flight.turn,
            attempt,
            event_id: delivery.event_id,
        };
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.serialize(line).map_err(io::Error::other)?;
        let bytes = writer.into_inner().map_err(io::Error::other)?;
        (&*self.0).write_all(&bytes)
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
    pub(crate) fn read(&mut self) -> io::Result<Vec<Line>> {
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
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&bytes[..]);
        reader.deserialize().collect::<Result<_, _>>().map_err(io::Error::other)
    }
}

fn file_of(dir: &Path, replica: usize) -> PathBuf {
    dir.join(format!("ledger-{replica}.csv"))
}
