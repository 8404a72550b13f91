//! The outcomes that wait for a write, and those that the database refuses: a trigger of the user raises.
//!
//! A refused outcome is tried again, at growing distances, as long as its record is claimed. The handler is not
//! called again meanwhile.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{record::RecordId, rules::claim::gather_time, store::ClaimOutcome};

/// The most outcomes per write.
const SETTLE_LIMIT: usize = 5_000;
/// Pauses between two tries of a refused outcome: the first pause, which doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// The outcomes that are not durable yet, without those of the write under way.
#[derive(Default)]
pub(super) struct Outcomes {
    /// Pushed by `push` and `retry`, taken by `next`.
    waiting: Vec<ClaimOutcome>,
    /// When `next` first found these waiting. Set and cleared by `next`.
    since: Option<Instant>,
    /// Refused outcomes and the times of their next tries. Added by `refuse`, taken by `retry`.
    refused: Vec<(Instant, ClaimOutcome)>,
    /// The last pauses of refused outcomes. Added by `refuse`, removed by `end`.
    pauses: HashMap<RecordId, Duration>,
}

impl Outcomes {
    pub(super) fn push(&mut self, outcome: ClaimOutcome) {
        self.waiting.push(outcome);
    }

    /// The outcomes of the next write, the oldest first. `running`: others may end soon.
    pub(super) fn next(
        &mut self,
        batch_size: usize,
        running: bool,
        now: Instant,
    ) -> Option<Vec<ClaimOutcome>> {
        let count = self.waiting.len().min(SETTLE_LIMIT);
        if count == 0 {
            return None;
        }
        let at = *self.since.get_or_insert(now) + gather_time(count, batch_size, running);
        (at <= now).then(|| {
            self.since = None;
            self.waiting.drain(..count).collect()
        })
    }

    /// When `next` returns outcomes that wait for others.
    pub(super) fn next_write(&self, batch_size: usize) -> Option<Instant> {
        self.since.map(|since| since + gather_time(self.waiting.len(), batch_size, true))
    }

    /// The database refuses this outcome.
    pub(super) fn refuse(&mut self, outcome: ClaimOutcome, now: Instant) {
        let pause = self.pauses.entry(outcome.id).or_default();
        *pause = (*pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
        self.refused.push((now + *pause, outcome));
    }

    /// Queues the refused outcomes whose time has come and whose records are still claimed.
    pub(super) fn retry(&mut self, now: Instant, is_held: impl Fn(&ClaimOutcome) -> bool) {
        for (at, outcome) in std::mem::take(&mut self.refused) {
            match is_held(&outcome) {
                true if at > now => self.refused.push((at, outcome)),
                true => self.waiting.push(outcome),
                false => self.end(outcome.id),
            }
        }
    }

    /// Queues all refused outcomes.
    pub(super) fn retry_all(&mut self) {
        self.waiting.extend(self.refused.drain(..).map(|(_, outcome)| outcome));
    }

    /// The outcome of a record is durable or given up.
    pub(super) fn end(&mut self, id: RecordId) {
        if !self.pauses.is_empty() {
            self.pauses.remove(&id);
        }
    }

    /// When the next try of a refused outcome is due.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.refused.iter().map(|(at, _)| *at).min()
    }

    /// Whether nothing is to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.refused.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ClaimEnd;

    fn outcome(id: RecordId) -> ClaimOutcome {
        ClaimOutcome { id, token: 1, end: ClaimEnd::Complete }
    }

    #[tokio::test(start_paused = true)]
    async fn outcomes_are_gathered_for_a_moment() {
        let (mut outcomes, now) = (Outcomes::default(), Instant::now());
        outcomes.push(outcome(1));
        assert_eq!(outcomes.next_write(10), None, "nobody has asked");
        assert_eq!(outcomes.next(10, true, now), None);
        let at = outcomes.next_write(10).unwrap();
        outcomes.push(outcome(2));
        assert_eq!(outcomes.next(10, true, at).map(|outcomes| outcomes.len()), Some(2));
        assert_eq!(outcomes.next_write(10), None);
        outcomes.push(outcome(3));
        assert_eq!(outcomes.next(10, true, at), None, "it waits as long as the first");
        assert_eq!(outcomes.next(10, false, at).map(|outcomes| outcomes.len()), Some(1), "nothing runs");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_outcome_is_tried_at_growing_distances_while_its_record_is_claimed() {
        let (mut outcomes, mut now) = (Outcomes::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            outcomes.refuse(outcome(1), now);
            let next = outcomes.next_retry().unwrap();
            outcomes.retry(now, |_| true);
            assert_eq!(outcomes.next(10, false, now), None, "its time has not come");
            pauses.push((next - now).as_secs());
            now = next;
            outcomes.retry(now, |_| true);
            assert_eq!(outcomes.next(10, false, now), Some(vec![outcome(1)]));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        outcomes.refuse(outcome(1), now);
        outcomes.retry(now, |_| false);
        assert!(outcomes.is_empty(), "another owner has it");
        outcomes.refuse(outcome(1), now);
        assert_eq!(outcomes.next_retry(), Some(now + FIRST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_refused_outcomes_are_tried_at_once() {
        let (mut outcomes, now) = (Outcomes::default(), Instant::now());
        outcomes.push(outcome(1));
        assert!(!outcomes.is_empty());
        assert_eq!(outcomes.next(10, false, now), Some(vec![outcome(1)]));
        assert!(outcomes.is_empty());
        outcomes.refuse(outcome(1), now);
        assert!(!outcomes.is_empty());
        outcomes.retry_all();
        assert_eq!(outcomes.next(10, false, now), Some(vec![outcome(1)]));
        assert!(outcomes.is_empty());
    }
}
