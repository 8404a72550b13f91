//! What worker processes write down of their calls, in the words of the checker, to files that survive a kill.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use keylane::{Delivery, Observer, Signal};
use keylane_checker::{CallKind, Called, End, What, history::Journal};

/// Nanoseconds since boot: comparable between processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The calls of one process.
#[derive(Debug)]
pub struct Calls {
    journal: Journal,
    calls: AtomicU64,
    /// Who this process is in the cluster; another one after an eviction.
    instance: Mutex<String>,
}

impl Calls {
    /// Opens the file to append to.
    ///
    /// # Errors
    /// As the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let process = u64::from(std::process::id());
        let journal = Journal::open(path, format!("worker-{process}"), now)?;
        Ok(Self { journal, calls: AtomicU64::new(process << 32), instance: Mutex::default() })
    }

    /// Notes that a call begins. If it is dropped before its end, that is noted, too.
    ///
    /// # Errors
    /// As the file system says.
    pub fn begin(&self, kind: CallKind, delivery: &Delivery) -> io::Result<Open<'_>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
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
        self.journal.tell(What::CallBegan { call, instance, kind, records: vec![called] })?;
        Ok(Open { calls: self, call, ended: false })
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

/// A call under way.
#[derive(Debug)]
pub struct Open<'a> {
    calls: &'a Calls,
    call: u64,
    ended: bool,
}

impl Open<'_> {
    /// Notes that the call has ended.
    ///
    /// # Errors
    /// As the file system says.
    pub fn end(mut self, end: End) -> io::Result<()> {
        self.ended = true;
        self.calls.journal.tell(What::CallEnded { call: self.call, ends: vec![end] })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let dropped = What::CallEnded { call: self.call, ends: vec![End::Dropped] };
            // A file that cannot be written fails the judgement, which finds no end.
            let _ = self.calls.journal.tell(dropped);
        }
    }
}
