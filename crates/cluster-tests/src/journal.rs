//! The journal of a worker process: its calls, as events of the checker, in a file that survives a kill.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use keylane::{Delivery, Observer, Signal};
use keylane_checker::{CallKind, Called, Journal, OpenCall};

/// The fault of a database that answers too late, or of a machine that is too busy.
pub const LAPSE: &str = "lapse";

/// The nanoseconds since boot, which are the same for all processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The file beside a journal with the identity of its process, since the process has joined.
pub fn identity_of(journal: &Path) -> PathBuf {
    journal.with_extension("instance")
}

/// The calls of one process.
#[derive(Debug)]
pub struct Calls {
    journal: Journal,
    /// The identity of this process in the cluster. An evicted process gets another one.
    instance: Mutex<String>,
    /// The file with the identity.
    identity: PathBuf,
}

impl Calls {
    /// Opens the file to append to.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let journal = Journal::open(path, format!("worker-{}", std::process::id()), now)?;
        Ok(Self { journal, instance: Mutex::default(), identity: identity_of(path) })
    }

    /// Writes that a call begins.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn begin(&self, kind: CallKind, delivery: &Delivery) -> io::Result<OpenCall<'_>> {
        let called = Called {
            id: delivery.id,
            event: delivery.event_id,
            handler: delivery.handler.to_string(),
            key: delivery.key.to_string(),
            partition: delivery.partition.number().into(),
            generation: delivery.generation.0,
            attempt: delivery.attempt,
        };
        let instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.journal.begin(instance, kind, vec![called])
    }

    /// Sets the identity, in the file too, which has the old or the new one at each moment.
    fn joined(&self, instance: &str) -> io::Result<()> {
        instance.clone_into(&mut self.instance.lock().unwrap_or_else(PoisonError::into_inner));
        let new = self.identity.with_extension("new");
        fs::write(&new, instance)?;
        fs::rename(new, &self.identity)
    }

    /// Writes that the database has acknowledged no beat for the length of the lease. What was called before may be
    /// called again; the fault is over at once, because nothing is called before the next beat.
    fn lease_lapsed(&self) -> io::Result<()> {
        self.journal.struck(LAPSE, &self.instance.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sets the identity of the following calls, and writes when the process has lost its lease.
#[derive(Debug)]
pub struct Identity(pub Arc<Calls>);

impl Observer for Identity {
    fn on(&self, signal: &Signal) {
        match signal {
            Signal::Joined { instance } => {
                // Without the file, the test waits for an identity that is gone, and fails.
                let _ = self.0.joined(&instance.to_string());
            }
            Signal::LeaseLapsed => {
                // Without the line, a repeated call has no cause, and the test fails.
                let _ = self.0.lease_lapsed();
            }
            _ => {}
        }
    }
}
