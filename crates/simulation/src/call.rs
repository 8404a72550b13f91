//! A call of a handler of the simulation, from its begin to its end.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use keylane::{Delivery, HandlerError};
use keylane_checker::{CallKind, Called, End, What};
use tokio::time::Instant;

use crate::{
    fate::Fate,
    node::Process,
    panics::{Unspeakable, panicking},
    plan::{PLAIN_CALLS, TRANSACTIONAL_CALLS},
};

/// The time in nanoseconds after a lapse of the lease within which calls are cancelled because of it.
const LAPSE: u64 = 100_000_000;

/// A call under way. If it is dropped before its end, the drop is its end.
pub(crate) struct UnderWay<'a> {
    process: &'a Process,
    kind: CallKind,
    in_transactions: bool,
    timeout: Duration,
    call: u64,
    /// The ends of the records so far, in the order of the call.
    pub(crate) ends: Vec<End>,
    records: usize,
    began: Instant,
    done: bool,
    drop_panics: bool,
}

impl<'a> UnderWay<'a> {
    /// Begins a call of these records. `in_transactions` says whether its handler is transactional.
    pub(crate) fn begin(
        process: &'a Process,
        kind: CallKind,
        (in_transactions, timeout): (bool, Duration),
        deliveries: &[&Delivery],
    ) -> Self {
        let call = process.world.number();
        let records = deliveries.iter().map(|delivery| Called {
            id: delivery.id,
            event: delivery.event_id,
            handler: delivery.handler.to_string(),
            key: delivery.key.to_string(),
            partition: delivery.partition.index() as u16,
            attempt: delivery.attempt,
            generation: delivery.generation.0,
        });
        let (place, name) = if in_transactions { (1, TRANSACTIONAL_CALLS) } else { (0, PLAIN_CALLS) };
        if let Some(value) = process.calls[place].begin() {
            process.note(What::Sampled { name: name.to_owned(), value });
        }
        process.note(What::CallBegan {
            call,
            instance: process.identity.instance(),
            kind,
            records: records.collect(),
        });
        Self {
            process,
            kind,
            in_transactions,
            timeout,
            call,
            ends: Vec::new(),
            records: deliveries.len(),
            began: Instant::now(),
            done: false,
            drop_panics: false,
        }
    }

    /// Works on the next record.
    pub(crate) async fn one(&mut self, fate: Fate) -> Result<(), HandlerError> {
        self.drop_panics |= fate.drop_panics;
        if !fate.takes.is_zero() {
            tokio::time::sleep(fate.takes).await;
        }
        self.ends.push(fate.end);
        match fate.end {
            End::Failed if fate.text_panics => Err(HandlerError::new(Unspeakable::of(self.process))),
            End::Failed => Err(HandlerError::new("as its fate says")),
            End::Permanent => Err(HandlerError::permanent("as its fate says")),
            End::Unavailable => Err(HandlerError::unavailable(Duration::from_millis(100))),
            End::Panicked => {
                self.whole(End::Panicked);
                self.end();
                panicking("the handler");
            }
            End::TimedOut => {
                self.ends.pop();
                std::future::pending().await
            }
            End::Ok | End::Refused | End::Dropped => Ok(()),
        }
    }

    /// Ends the call with a failure as a whole, which is a failure of its first record. A transaction of
    /// several records is tried again in parts, so its records get no result.
    pub(crate) fn whole(&mut self, end: End) {
        let several = self.kind == CallKind::TransactionalBatch && self.records > 1;
        self.ends = vec![End::Dropped; self.records];
        if !several && let Some(first) = self.ends.first_mut() {
            *first = end;
        }
    }

    /// Ends the call with the ends so far.
    pub(crate) fn end(&mut self) {
        // Whatever the handler has returned, the call ends in a panic.
        if self.drop_panics && !self.done {
            self.whole(End::Panicked);
        }
        self.note_end();
    }

    fn note_end(&mut self) {
        if !self.done {
            self.process.calls[usize::from(self.in_transactions)].end();
        }
        self.done = true;
        let ends = std::mem::take(&mut self.ends);
        self.process.note(What::CallEnded { call: self.call, ends });
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.done {
            // Only in a process that ends there is no clock.
            let dead = self.process.dead.load(Relaxed);
            let process = self.process;
            let lapsed = process.lapsed_at.load(Relaxed);
            let cancelled = lapsed > 0 && process.world.time.now() < lapsed + LAPSE;
            let timed_out = !dead && !cancelled && self.began.elapsed() >= self.timeout;
            let end = match (timed_out, self.drop_panics) {
                // The end of a cancelled call's drop is not recorded.
                _ if cancelled => End::Dropped,
                (_, true) => End::Panicked,
                (true, false) => End::TimedOut,
                (false, false) => End::Dropped,
            };
            self.whole(end);
            self.note_end();
        }
        if self.drop_panics && !std::thread::panicking() {
            panicking("the handler's future, as it was dropped");
        }
    }
}
