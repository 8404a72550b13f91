//! The writing end: the history of one process.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{CallKind, Called, End, Event, What, history::line};

/// A file to which each event is appended in one write, so that it survives a kill of its process.
#[derive(Debug)]
pub struct Journal {
    file: File,
    process: String,
    clock: fn() -> u64,
    calls: AtomicU64,
}

impl Journal {
    /// Opens a file to append to. The clock is one that all processes of the history share.
    ///
    /// # Errors
    /// As the file system says.
    pub fn open(path: &Path, process: impl Into<String>, clock: fn() -> u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let calls = AtomicU64::new(u64::from(std::process::id()) << 32);
        Ok(Self { file, process: process.into(), clock, calls })
    }

    /// Appends what happens now.
    ///
    /// # Errors
    /// As the file system says.
    pub fn tell(&self, what: What) -> io::Result<()> {
        let event = Event { at: (self.clock)(), process: self.process.clone(), what };
        (&self.file).write_all(&line(&event)?)
    }

    /// A number that names a call in the whole history.
    pub fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends that a call begins.
    ///
    /// # Errors
    /// As the file system says.
    pub fn begin(&self, instance: String, kind: CallKind, records: Vec<Called>) -> io::Result<OpenCall<'_>> {
        let (call, count) = (self.call(), records.len());
        self.tell(What::CallBegan { call, instance, kind, records })?;
        Ok(OpenCall { journal: self, call, records: count, ended: false })
    }
}

/// A call under way. If it is dropped before its end, that is appended, too.
#[derive(Debug)]
pub struct OpenCall<'a> {
    journal: &'a Journal,
    call: u64,
    records: usize,
    ended: bool,
}

impl OpenCall<'_> {
    /// Appends that the call has ended, with an end for each record.
    ///
    /// # Errors
    /// As the file system says.
    pub fn end(mut self, ends: &[End]) -> io::Result<()> {
        self.ended = true;
        self.journal.tell(What::CallEnded { call: self.call, ends: ends.to_vec() })
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let ends = vec![End::Dropped; self.records];
            // Where the line cannot be written, the judge finds a call without an end.
            let _ = self.journal.tell(What::CallEnded { call: self.call, ends });
        }
    }
}
