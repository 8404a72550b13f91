//! What worker processes write down of their calls, in the words of the checker, to files that survive a kill.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use keylane::{Delivery, Observer, Signal};
use keylane_checker::{CallKind, Called, Journal, OpenCall};

/// Nanoseconds since boot: comparable between processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The calls of one process.
#[derive(Debug)]
pub struct Calls {
    journal: Journal,
    /// Who this process is in the cluster; another one after an eviction.
    instance: Mutex<String>,
}

impl Calls {
    /// Opens the file to append to.
    ///
    /// # Errors
    /// As the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let journal = Journal::open(path, format!("worker-{}", std::process::id()), now)?;
        Ok(Self { journal, instance: Mutex::default() })
    }

    /// Notes that a call begins.
    ///
    /// # Errors
    /// As the file system says.
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
}

/// Tells the calls who this process is.
#[derive(Debug)]
pub struct Identity(pub Arc<Calls>);

impl Observer for Identity {
    fn on(&self, signal: &Signal) {
        if let Signal::Joined { instance } = signal {
            *self.0.instance.lock().unwrap_or_else(PoisonError::into_inner) = instance.to_string();
        }
    }
}
