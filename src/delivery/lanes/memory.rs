//! The records in memory: queued, running or being written.

use std::collections::HashMap;

use crate::record::RecordId;

/// Which records are in memory, and how much room their payloads take.
#[derive(Default)]
pub(super) struct Memory {
    /// The bytes of each payload by record. Written when a record is admitted and when it is done with.
    known: HashMap<RecordId, u32, foldhash::fast::RandomState>,
    /// Their sum.
    bytes: usize,
}

impl Memory {
    pub(super) fn knows(&self, id: RecordId) -> bool {
        self.known.contains_key(&id)
    }

    pub(super) fn ids(&self) -> Vec<RecordId> {
        self.known.keys().copied().collect()
    }

    pub(super) fn records(&self) -> usize {
        self.known.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, id: RecordId, payload: usize) {
        // A payload has at most 4 GiB in every database.
        let bytes = u32::try_from(payload).unwrap_or(u32::MAX);
        let before = self.known.insert(id, bytes).unwrap_or_default();
        self.bytes += bytes as usize;
        self.bytes -= before as usize;
    }

    pub(super) fn remove(&mut self, id: RecordId) {
        self.bytes -= self.known.remove(&id).unwrap_or_default() as usize;
    }
}
