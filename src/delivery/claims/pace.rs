//! Whether claims and writes of outcomes take turns, and how long a claim waits for outcomes.

use tokio::time::Instant;

use crate::{
    record::RecordId,
    rules::claim::{GATHERED_FOR, Reading, meets_others},
    store::Source,
};

/// What the last claims show of other instances and of handlers.
#[derive(Default)]
pub(super) struct Pace {
    /// Whether the last claim in the order of ids has passed over records, which others have claimed. Set by
    /// `claimed`.
    meets_others: bool,
    /// When records were claimed last. Set by `claimed`.
    claimed_at: Option<Instant>,
}

impl Pace {
    /// A claim has brought so many records; `ids`: the lowest and the highest id.
    pub(super) fn claimed(
        &mut self,
        source: Source,
        ids: Option<(RecordId, RecordId)>,
        count: usize,
        now: Instant,
    ) {
        let Some((_, last)) = ids else { return };
        self.claimed_at = Some(now);
        if let Source::Pending(Reading::Ids { from }) = source {
            self.meets_others = meets_others(from, last, count);
        }
    }

    /// Whether other instances seem to claim from the same backlog.
    pub(super) fn meets_others(&self) -> bool {
        self.meets_others
    }

    /// Up to when the outcomes of the last claim may come soon enough to be written before the next claim.
    pub(super) fn settles_by(&self) -> Option<Instant> {
        self.claimed_at.map(|at| at + GATHERED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::partition::Partition;

    #[tokio::test(start_paused = true)]
    async fn who_passes_over_records_in_the_order_of_ids_meets_others() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let by_id = |from| Source::Pending(Reading::Ids { from });
        assert_eq!((pace.meets_others(), pace.settles_by()), (false, None));
        pace.claimed(by_id(5), Some((5, 9)), 5, now);
        assert!(!pace.meets_others() && pace.settles_by() == Some(now + Duration::from_millis(2)));
        pace.claimed(by_id(10), Some((12, 15)), 4, now);
        assert!(pace.meets_others());
        pace.claimed(Source::Pending(Reading::Index { from: Partition::FIRST }), Some((1, 99)), 2, now);
        pace.claimed(by_id(16), None, 0, now);
        assert!(pace.meets_others(), "neither tells anything");
        pace.claimed(by_id(16), Some((16, 16)), 1, now);
        assert!(!pace.meets_others());
    }
}
