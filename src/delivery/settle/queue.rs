//! The writes that wait for the settler, and the refused writes: a trigger of the user raises, or a value
//! does not fit.
//!
//! A refused write is tried again, at growing distances, as long as this instance owns its partition. Its
//! lane waits, because otherwise a later record would be delivered before an earlier one is settled. All other
//! lanes go on.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    delivery::work::{Batch, LaneId, Write},
    ownership::Permit,
    record::RecordId,
};

/// The most writes per settle.
const SETTLE_LIMIT: usize = 5_000;
/// Pauses between two tries of a refused write: the first pause, which doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// The writes that are not durable yet, without the batch that the settler has.
#[derive(Default)]
pub(in crate::delivery) struct SettleQueue {
    /// Pushed by the dispatcher and by `retry`, taken by `next_batch`.
    waiting: Batch,
    /// Refused writes. Added by `refuse`, taken by `retry`.
    refused: Vec<Refused>,
}

/// A refused write and the time of its next try.
struct Refused {
    write: Write,
    at: Instant,
}

impl SettleQueue {
    pub(in crate::delivery) fn push(&mut self, write: Write) {
        self.waiting.push(write);
    }

    /// The writes of the next settle, the oldest first, or `None` if none waits.
    pub(in crate::delivery) fn next_batch(&mut self) -> Option<Batch> {
        match self.waiting.len() {
            0 => None,
            // The next batch is likely to be about as large.
            1..=SETTLE_LIMIT => {
                let next = self.waiting.of_this_size();
                Some(std::mem::replace(&mut self.waiting, next))
            }
            _ => Some(Batch {
                settlements: self.waiting.settlements.drain(..SETTLE_LIMIT).collect(),
                origins: self.waiting.origins.drain(..SETTLE_LIMIT).collect(),
            }),
        }
    }

    /// Keeps the refused writes of a batch for their next try. Returns the other writes, and the lanes of
    /// those that were refused for the first time.
    pub(in crate::delivery) fn refuse(
        &mut self,
        batch: Batch,
        refused: &[RecordId],
        now: Instant,
    ) -> (Batch, Vec<LaneId>) {
        if refused.is_empty() {
            return (batch, Vec::new());
        }
        let (mut rest, mut lanes) = (Batch::default(), Vec::new());
        for mut write in batch.writes() {
            if !refused.contains(&write.settlement.id) {
                rest.push(write);
                continue;
            }
            let pause = &mut write.origin.pause;
            if pause.is_zero() {
                lanes.push(write.origin.lane);
            }
            *pause = (*pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
            self.refused.push(Refused { at: now + *pause, write });
        }
        (rest, lanes)
    }

    /// Queues the refused writes whose time has come. Returns the writes that are given up, because another
    /// instance may own their partition.
    pub(in crate::delivery) fn retry(&mut self, now: Instant) -> Vec<Write> {
        let mut given_up = Vec::new();
        for Refused { write, at } in std::mem::take(&mut self.refused) {
            let owned = write.origin.permit.as_ref().is_some_and(Permit::is_current);
            match owned {
                true if at > now => self.refused.push(Refused { write, at }),
                true => self.waiting.push(write),
                false => given_up.push(write),
            }
        }
        given_up
    }

    /// When the next try of a refused write is due.
    pub(in crate::delivery) fn next_retry(&self) -> Option<Instant> {
        self.refused.iter().map(|refused| refused.at).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        delivery::{fixtures, work::Origin},
        instance::Generation,
        partition::Partition,
        record::{Change, Settlement},
    };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// Each step pushes `step % 9` writes, and the database refuses those whose id the step divides. Each
        /// write is settled once in the end, however often it was refused. The last steps refuse nothing;
        /// they are more than the longest wait of a write takes.
        #[test]
        fn every_write_is_settled_once(steps in prop::collection::vec(1_i64..9, 1..40)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let ownership = fixtures::owning_all();
                let (mut queue, mut now, mut pushed) = (SettleQueue::default(), Instant::now(), 0);
                let mut settled = BTreeSet::new();
                for step in steps.iter().copied().chain([i64::MAX; 400]) {
                    for _ in 0..step % 9 {
                        pushed += 1;
                        let settlement = Settlement { id: pushed, failures: 0, change: Change::Complete };
                        let permit = ownership.permit(Partition::of("a"));
                        let origin = Origin { lane: LaneId(0), permit, pause: Duration::ZERO };
                        queue.push(Write { settlement, origin });
                    }
                    assert!(queue.retry(now).is_empty(), "nothing is given up while it is owned");
                    let Some(batch) = queue.next_batch() else {
                        now = queue.next_retry().unwrap_or(now);
                        continue;
                    };
                    let ids = batch.settlements.iter().map(|settlement| settlement.id);
                    let refused: Vec<RecordId> = ids.filter(|id| id % step == 0).collect();
                    let (rest, lanes) = queue.refuse(batch, &refused, now);
                    assert!(lanes.len() <= refused.len());
                    for settlement in rest.settlements {
                        assert!(settled.insert(settlement.id), "{} is settled twice", settlement.id);
                    }
                    now = queue.next_retry().unwrap_or(now);
                }
                assert_eq!(settled, (1..=pushed).collect());
                assert_eq!(ownership.permits_out(), 0);
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_write_is_tried_at_growing_distances() {
        let ownership = fixtures::owning_all();
        let (mut queue, mut now, mut pauses) = (SettleQueue::default(), Instant::now(), Vec::new());
        let settlement = Settlement { id: 1, failures: 0, change: Change::Complete };
        let origin =
            Origin { lane: LaneId(0), permit: ownership.permit(Partition::of("a")), pause: Duration::ZERO };
        queue.push(Write { settlement, origin });
        for _ in 0..8 {
            let batch = queue.next_batch().unwrap();
            queue.refuse(batch, &[1], now);
            let next = queue.next_retry().unwrap();
            pauses.push((next - now).as_secs());
            now = next;
            assert!(queue.retry(now).is_empty());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_write_is_given_up_once_another_owns_its_partition() {
        let ownership = fixtures::owning_all();
        let partition = Partition::of("a");
        let (mut queue, now) = (SettleQueue::default(), Instant::now());
        let settlement = Settlement { id: 1, failures: 0, change: Change::Complete };
        let permit = ownership.permit(partition);
        queue.push(Write { settlement, origin: Origin { lane: LaneId(0), permit, pause: Duration::ZERO } });
        let batch = queue.next_batch().unwrap();
        assert_eq!(queue.refuse(batch, &[1], now).1, [LaneId(0)]);
        assert_eq!(queue.next_retry(), Some(now + FIRST_PAUSE));
        assert!(queue.retry(now).is_empty() && queue.next_batch().is_none(), "it waits for its time");
        ownership.grant(&[(partition, Generation(9))]);
        assert_eq!(queue.retry(now).len(), 1);
        assert_eq!(queue.next_retry(), None);
    }
}
