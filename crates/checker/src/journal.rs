//! The writer of a history: the events of one process.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{CallKind, Called, End, Event, What, history::line};

/// A file to which each event is appended in one write, so that the events survive a kill of the process.
#[derive(Debug)]
pub struct Journal {
    file: File,
    process: String,
    clock: fn() -> u64,
    calls: AtomicU64,
}

impl Journal {
    /// Opens a file to append to. All processes of the history must share the clock.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn open(path: &Path, process: impl Into<String>, clock: fn() -> u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let calls = AtomicU64::new(u64::from(std::process::id()) << 32);
        Ok(Self { file, process: process.into(), clock, calls })
    }

    /// Appends an event with the present time.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn tell(&self, what: What) -> io::Result<()> {
        let event = Event { at: (self.clock)(), process: self.process.clone(), what };
        (&self.file).write_all(&line(&event)?)
    }

    /// Appends a fault of an instance that is over at once.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn struck(&self, fault: &str, instance: &str) -> io::Result<()> {
        let (fault, instance) = (fault.to_owned(), Some(instance.to_owned()));
        self.tell(What::FaultBegan { fault: fault.clone(), instance: instance.clone() })?;
        self.tell(What::FaultEnded { fault, instance })
    }

    /// A number for a call, unique in the whole history.
    pub fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends the begin of a call.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn begin(&self, instance: String, kind: CallKind, records: Vec<Called>) -> io::Result<OpenCall<'_>> {
        let (call, count) = (self.call(), records.len());
        self.tell(What::CallBegan { call, instance, kind, records })?;
        Ok(OpenCall { journal: self, call, records: count, ended: false })
    }
}

/// A call under way. If it is dropped before its end, an end is appended, too.
#[derive(Debug)]
pub struct OpenCall<'a> {
    journal: &'a Journal,
    call: u64,
    records: usize,
    ended: bool,
}

impl OpenCall<'_> {
    /// Appends the end of the call, with an end per record.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn end(mut self, ends: &[End]) -> io::Result<()> {
        self.ended = true;
        self.journal.tell(What::CallEnded { call: self.call, ends: ends.to_vec() })
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let ends = vec![End::Dropped; self.records];
            // If the line cannot be written, the judge finds a call without an end.
            let _ = self.journal.tell(What::CallEnded { call: self.call, ends });
        }
    }
}
