//! The records in memory: queued, running or being written.

use std::collections::HashMap;

use crate::{partition::Partition, record::RecordId};

/// Which records are in memory, and how much room their payloads take.
#[derive(Default)]
pub(super) struct Memory {
    /// What is known of each record. Written when a record is admitted and when it is done with.
    known: HashMap<RecordId, Known, foldhash::fast::RandomState>,
    /// The sum of their bytes.
    bytes: usize,
    /// How many there are of each handler, by its number.
    of_handlers: Vec<usize>,
}

/// One record.
struct Known {
    /// Of its payload.
    bytes: u32,
    /// The number of its handler, if this build has it.
    handler: Option<u32>,
    /// Where it belongs. Never changes.
    partition: Partition,
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

    /// Records of the handler with this number.
    pub(super) fn of_handler(&self, number: usize) -> usize {
        self.of_handlers.get(number).copied().unwrap_or(0)
    }

    /// A record that is not known yet.
    pub(super) fn add(&mut self, id: RecordId, partition: Partition, payload: usize, handler: Option<usize>) {
        self.remove(id);
        // A payload has at most 4 GiB in every database.
        let bytes = u32::try_from(payload).unwrap_or(u32::MAX);
        self.bytes += bytes as usize;
        if let Some(number) = handler {
            if self.of_handlers.len() <= number {
                self.of_handlers.resize(number + 1, 0);
            }
            self.of_handlers[number] += 1;
        }
        self.known.insert(id, Known { bytes, handler: handler.map(|number| number as u32), partition });
    }

    /// Returns where it belonged, if it was known.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<Partition> {
        let Known { bytes, handler, partition } = self.known.remove(&id)?;
        self.bytes -= bytes as usize;
        if let Some(count) = handler.and_then(|number| self.of_handlers.get_mut(number as usize)) {
            *count -= 1;
        }
        Some(partition)
    }
}
