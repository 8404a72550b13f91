//! The events of a bench, and the proof that each of them was handled exactly once.

use std::{
    borrow::Cow,
    hint::black_box,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use keylane::{Observer, OutboxEvent, Signal};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Result, options::Load};

/// The scheduled event.
#[derive(Serialize, Deserialize)]
pub(crate) struct Event {
    key: usize,
    text: String,
}

impl OutboxEvent for Event {
    const RECORD_TYPE: &'static str = "bench.event";

    fn key(&self) -> Cow<'_, str> {
        Self::key_of(self.key).into()
    }
}

impl Event {
    /// The event with this number. Keys come in a scattered order, payloads have the length asked for.
    pub(super) fn numbered(number: usize, load: Load) -> Self {
        Self::of_key(number * 7919 % load.keys, load)
    }

    /// An event of the key with this number.
    pub(super) fn of_key(key: usize, load: Load) -> Self {
        let frame = format!(r#"{{"key":{key},"text":""}}"#).len();
        Self { key, text: "x".repeat(load.payload_bytes.saturating_sub(frame)) }
    }

    /// The payload without the key.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The record key with this number.
    pub(super) fn key_of(number: usize) -> String {
        format!("key-{number}")
    }
}

/// Counts the records of one run as they are handled.
pub(super) struct Tally {
    records: usize,
    ids: RangeInclusive<i64>,
    /// One bit per id.
    seen: Vec<AtomicU64>,
    handled: AtomicUsize,
    settled: AtomicUsize,
    /// Records that were handled before, or were never scheduled.
    wrong: AtomicUsize,
    all_handled: Notify,
    all_settled: Notify,
}

impl Tally {
    /// A tally of this many records with ids in this range.
    pub(super) fn new(records: usize, ids: RangeInclusive<i64>) -> Self {
        let words = (ids.end() - ids.start()).max(0) as usize / 64 + 1;
        Self {
            records,
            ids,
            seen: (0..words).map(|_| AtomicU64::new(0)).collect(),
            handled: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
            wrong: AtomicUsize::new(0),
            all_handled: Notify::new(),
            all_settled: Notify::new(),
        }
    }

    /// A tally that is complete with any of these records, if they are this many.
    pub(super) fn part(&self, records: usize) -> Self {
        Self::new(records, self.ids.clone())
    }

    /// Counts a record. The handler does nothing else.
    pub(super) fn handle(&self, id: i64, event: Event) {
        black_box(event);
        if !self.ids.contains(&id) || self.mark((id - self.ids.start()) as usize) {
            self.wrong.fetch_add(1, Relaxed);
        }
        if self.handled.fetch_add(1, Relaxed) + 1 == self.records {
            self.all_handled.notify_one();
        }
    }

    /// Sets the bit of an id. Returns whether it was set already.
    fn mark(&self, at: usize) -> bool {
        let bit = 1 << (at % 64);
        self.seen[at / 64].fetch_or(bit, Relaxed) & bit != 0
    }

    /// Counts records that another process has handled. Which ones, [`merge`](Self::merge) says later.
    pub(super) fn add(&self, records: usize) {
        let before = self.handled.fetch_add(records, Relaxed);
        if before < self.records && before + records >= self.records {
            self.all_handled.notify_one();
        }
    }

    /// Marks what another process [has seen](Self::seen).
    pub(super) fn merge(&self, seen: &[u64], wrong: usize) {
        let twice =
            |(word, bits): (&AtomicU64, &u64)| (word.fetch_or(*bits, Relaxed) & bits).count_ones() as usize;
        let twice: usize = self.seen.iter().zip(seen).map(twice).sum();
        self.wrong.fetch_add(twice + wrong, Relaxed);
    }

    /// One bit per id that was handled, and how many records were handled wrongly.
    pub(super) fn seen(&self) -> (Vec<u64>, usize) {
        (self.seen.iter().map(|word| word.load(Relaxed)).collect(), self.wrong.load(Relaxed))
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn handled(&self) -> usize {
        self.handled.load(Relaxed)
    }

    /// Counts settled records.
    pub(super) fn settle(&self, records: usize) {
        let before = self.settled.fetch_add(records, Relaxed);
        if before < self.records && before + records >= self.records {
            self.all_settled.notify_one();
        }
    }

    pub(super) fn settled(&self) -> usize {
        self.settled.load(Relaxed)
    }

    /// Whether every record was handled.
    pub(super) fn is_complete(&self) -> bool {
        self.handled() >= self.records
    }

    /// Returns when every record was handled. There is at most one waiter.
    pub(super) async fn all_handled(&self) {
        self.all_handled.notified().await;
    }

    /// Returns when all records were [settled](Self::settle). There is at most one waiter.
    pub(super) async fn all_settled(&self) {
        self.all_settled.notified().await;
    }

    /// # Errors
    /// Unless each record was handled exactly once.
    pub(super) fn check(&self) -> Result<()> {
        self.check_handled(self.handled() == self.records)
    }

    /// # Errors
    /// Unless at least this many records were handled, none of them twice.
    pub(super) fn check_part(&self) -> Result<()> {
        self.check_handled(self.is_complete())
    }

    fn check_handled(&self, enough: bool) -> Result<()> {
        let (records, handled, wrong) = (self.records, self.handled(), self.wrong.load(Relaxed));
        if enough && wrong == 0 {
            return Ok(());
        }
        Err(format!("{handled} records were handled instead of {records}, {wrong} of them wrongly").into())
    }
}

/// The observer that counts settled records in the tally.
pub(super) struct Settles(pub(super) Arc<Tally>);

impl Observer for Settles {
    fn on(&self, signal: &Signal) {
        if let Signal::Settled { records } = signal {
            self.0.settle(*records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(payload_bytes: usize) -> Load {
        Load { keys: std::num::NonZeroUsize::new(10_000).unwrap(), payload_bytes }
    }

    #[test]
    fn payloads_have_the_length_asked_for() {
        for number in [0, 1, 77, 12_345] {
            let event = Event::numbered(number, load(200));
            assert_eq!(serde_json::to_vec(&event).unwrap().len(), 200);
        }
    }

    #[test]
    fn a_record_too_few_too_many_or_twice_is_found() {
        let handled = |ids: &[i64]| {
            let tally = Tally::new(3, 100..=102);
            ids.iter().for_each(|id| tally.handle(*id, Event::numbered(0, load(0))));
            tally.check().is_ok()
        };
        assert!(handled(&[102, 100, 101]));
        assert!(!handled(&[100, 101]));
        assert!(!handled(&[100, 101, 101]));
        assert!(!handled(&[100, 101, 103]));
        assert!(!handled(&[100, 101, 102, 102]));
    }
}
