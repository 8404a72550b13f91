//! The records in memory: queued, running or being written.

use std::collections::HashMap;

use crate::{
    partition::Partition,
    record::RecordId,
    rules::{
        pacing::FetchLimits,
        sharing::{bytes_per_place, places},
    },
};

/// The records in memory, and the bytes of their payloads.
pub(super) struct Memory {
    /// The bytes of a place of the memory. Never changes.
    bytes_per_place: usize,
    /// The facts of each record. Written by `add` and `remove`.
    known: HashMap<RecordId, Known, foldhash::fast::RandomState>,
    /// The sum of the payload bytes. Written by `add` and `remove`.
    bytes: usize,
    /// The places of the records per handler, by the number of the handler. Written by `add` and `remove`.
    of_handlers: Vec<usize>,
}

/// One record.
struct Known {
    /// The bytes of its payload.
    bytes: u32,
    /// The number of its handler, if this build has it.
    handler: Option<u32>,
    /// The partition of the record. Never changes.
    partition: Partition,
}

impl Memory {
    pub(super) fn new(limits: FetchLimits) -> Self {
        let (known, of_handlers) = Default::default();
        Self { bytes_per_place: bytes_per_place(limits), known, bytes: 0, of_handlers }
    }

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

    /// The places of the records of the handler with this number.
    pub(super) fn of_handler(&self, number: usize) -> usize {
        self.of_handlers.get(number).copied().unwrap_or(0)
    }

    /// Adds a record; `payload` is in bytes.
    pub(super) fn add(&mut self, id: RecordId, partition: Partition, payload: usize, handler: Option<usize>) {
        // Every database limits a payload to at most 4 GiB.
        let bytes = u32::try_from(payload).unwrap_or(u32::MAX);
        self.bytes += bytes as usize;
        if let Some(number) = handler {
            if self.of_handlers.len() <= number {
                self.of_handlers.resize(number + 1, 0);
            }
            self.of_handlers[number] += places(bytes as usize, self.bytes_per_place);
        }
        let known = Known { bytes, handler: handler.map(|number| number as u32), partition };
        if let Some(before) = self.known.insert(id, known) {
            self.count_out(&before);
        }
    }

    /// Removes a record. Returns its partition, if the record was in memory.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<Partition> {
        let known = self.known.remove(&id)?;
        self.count_out(&known);
        Some(known.partition)
    }

    fn count_out(&mut self, Known { bytes, handler, .. }: &Known) {
        self.bytes -= *bytes as usize;
        if let Some(count) = handler.and_then(|number| self.of_handlers.get_mut(number as usize)) {
            *count -= places(*bytes as usize, self.bytes_per_place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_records_bytes_and_handlers() {
        let limits = FetchLimits { batch_size: 1, max_in_flight: 10, max_in_flight_bytes: 1_000 };
        let (mut memory, partition) = (Memory::new(limits), Partition::of("a"));
        memory.add(1, partition, 100, Some(2));
        memory.add(2, partition, 20, Some(0));
        memory.add(3, partition, 3, None);
        assert_eq!((memory.records(), memory.bytes()), (3, 123));
        assert_eq!([0, 1, 2, 3].map(|number| memory.of_handler(number)), [1, 0, 1, 0]);
        memory.add(1, partition, 50, Some(2));
        assert_eq!(
            (memory.records(), memory.bytes(), memory.of_handler(2)),
            (3, 73, 1),
            "it is the same one"
        );
        assert_eq!(memory.remove(1), Some(partition));
        assert_eq!(memory.remove(1), None);
        assert_eq!((memory.records(), memory.bytes(), memory.of_handler(2)), (2, 23, 0));
        assert!(memory.knows(2) && !memory.knows(1));
        memory.add(4, partition, 301, Some(1));
        assert_eq!(memory.of_handler(1), 4, "its payload takes a third of the bytes");
        memory.remove(4);
        assert_eq!(memory.of_handler(1), 0);
        let mut ids = memory.ids();
        ids.sort_unstable();
        assert_eq!(ids, [2, 3]);
    }
}
