//! Claimed mode: which records to claim next, how many, and when to renew.

use std::time::Duration;

use super::pacing::{FetchLimits, fetch_size};
use crate::{partition::Partition, record::RecordId};

/// The part of a lease after which it is renewed: two renewals may fail before it ends.
const RENEWED_AFTER: u32 = 3;
/// The part of a batch that may wait for a handler when more records are claimed for it.
const WAITING_PART: usize = 2;
/// The part of the memory outside of runs that may wait for one of several handlers.
const SHARE_PART: usize = 8;
/// The part of the free memory that a claim leaves to the other handlers.
const LEFT_PART: usize = 2;

/// The part of a batch that a claim by the index takes.
const INDEX_PART: usize = 8;

/// The time from the begin of a lease to its renewal.
pub fn renew_after(lease: Duration) -> Duration {
    lease / RENEWED_AFTER
}

/// From how many waiting records on no more are claimed for a handler. Claimed records that wait are kept from other
/// instances, and a slow handler must not fill the memory.
///
/// If several handlers share the memory, places of the memory are counted instead (`rules::sharing::places`), of which
/// `outside_runs` are in no run.
pub fn enough(batch_size: usize, outside_runs: Option<usize>) -> usize {
    let share = outside_runs.map_or(usize::MAX, |places| places / SHARE_PART);
    batch_size.div_ceil(WAITING_PART).min(share).max(1)
}

/// The most records of the next claim, 0 if memory is full. If several handlers share the memory, a claim leaves half
/// of what is free to those that come next: all of a claim may be of one handler.
pub fn claim_size(limits: FetchLimits, held: usize, bytes: usize, is_shared: bool) -> usize {
    let most = |limit: usize, taken: usize| match is_shared {
        true => taken + limit.saturating_sub(taken).div_ceil(LEFT_PART),
        false => limit,
    };
    let limits = FetchLimits {
        max_in_flight: most(limits.max_in_flight, held),
        max_in_flight_bytes: most(limits.max_in_flight_bytes, bytes),
        ..limits
    };
    fetch_size(limits, held, bytes, bytes / held.max(1))
}

/// Whether a claim of so many records in the order of ids, from `from` to `last`, has passed over others. Other
/// instances have claimed them, and are about to claim more.
pub fn meets_others(from: RecordId, last: RecordId, claimed: usize) -> bool {
    last.saturating_sub(from) >= RecordId::try_from(claimed).unwrap_or(RecordId::MAX)
}

/// How long outcomes wait for the outcomes of other runs.
pub const GATHERED_FOR: Duration = Duration::from_millis(2);

/// How long the first of so many outcomes waits before they are written. The records of a batch mostly end one
/// shortly after the other, and one write for all costs the database less than two.
pub fn gather_time(outcomes: usize, batch_size: usize, running: bool) -> Duration {
    if running && outcomes < batch_size { GATHERED_FOR } else { Duration::ZERO }
}

/// The leases of a record that may run out before it is a suspect, whose crashes count. A lease that runs out
/// does not show its cause, and all records of the process lose their leases together.
const UNSUSPECTED: u32 = 2;

/// The crashes that count against a record of which so many leases have run out in a row. A suspect is claimed
/// alone, so the crashes were its own.
pub fn crashes_of_a_suspect(run_out: u32) -> u32 {
    run_out.saturating_sub(UNSUSPECTED)
}

/// Which pending records a claim reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// By the index of pending records, partition after partition from this one on. Exact: it meets no other
    /// record.
    Index {
        /// The first partition.
        from: Partition,
    },
    /// In the order of ids from this one on. Records with neighbouring ids lie on the same pages, so that
    /// claims of a backlog and writes of its outcomes touch few pages.
    Ids {
        /// The first id.
        from: RecordId,
    },
}

impl Reading {
    /// The most records of a claim, of a batch of `limit`. A claim by the index is small: its records are scattered,
    /// and if there are more, a pass over the ids takes them.
    pub fn limit(self, limit: usize) -> usize {
        match self {
            Self::Index { .. } => limit.div_ceil(INDEX_PART),
            Self::Ids { .. } => limit,
        }
    }
}

/// What a claim of pending records has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The lowest and the highest id, if anything was found.
    pub ids: Option<(RecordId, RecordId)>,
    /// The highest partition, if anything was found.
    pub last: Option<Partition>,
    /// Whether the claim has found as many as it asked for.
    pub is_full: bool,
}

/// How far the claims of pending records have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    index_from: Partition,
    ids_from: Option<RecordId>,
}

impl Progress {
    /// The first claim reads the index from this partition on.
    pub fn new(index_from: Partition) -> Self {
        Self { index_from, ids_from: None }
    }

    /// What the next claim reads. During a backlog that is a pass over the ids. With `by_index` it is the
    /// index instead, because the pass misses what is committed late.
    pub fn next(self, by_index: bool) -> Reading {
        match self.ids_from {
            Some(from) if !by_index => Reading::Ids { from },
            _ => Reading::Index { from: self.index_from },
        }
    }

    /// How far claims have come after this one. `None` if no pending record is left to claim.
    ///
    /// A full claim by the index shows a backlog: a pass over the ids begins. At its end the index is read
    /// again, and only the index tells that nothing is left.
    pub fn after(self, reading: Reading, found: Found) -> Option<Self> {
        let Self { index_from, ids_from } = self;
        Some(match reading {
            Reading::Ids { .. } => match found.ids {
                Some((_, last)) if found.is_full => Self { index_from, ids_from: Some(last + 1) },
                _ => Self::new(Partition::FIRST),
            },
            Reading::Index { .. } if found.is_full => Self {
                index_from: found.last.unwrap_or(index_from),
                ids_from: ids_from.or(found.ids.map(|(first, _)| first)),
            },
            Reading::Index { from } if from != Partition::FIRST || ids_from.is_some() => {
                Self { index_from: Partition::FIRST, ids_from }
            }
            Reading::Index { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition(number: i64) -> Partition {
        Partition::new(number).unwrap()
    }

    /// Claims up to `batch` of these records, which are pairs of an id and its partition.
    fn claim(pending: &mut Vec<(i64, i64)>, reading: Reading, batch: usize) -> Found {
        match reading {
            Reading::Index { .. } => pending.sort_unstable_by_key(|(id, of)| (*of, *id)),
            Reading::Ids { .. } => pending.sort_unstable(),
        }
        let (taken, rest): (Vec<_>, Vec<_>) =
            pending.iter().enumerate().partition(|(_, (id, of))| match reading {
                Reading::Index { from } => partition(*of) >= from,
                Reading::Ids { from } => *id >= from,
            });
        let taken: Vec<(i64, i64)> = taken.into_iter().map(|(_, record)| *record).collect();
        let left =
            taken.iter().skip(batch).chain(rest.into_iter().map(|(_, record)| record)).copied().collect();
        *pending = left;
        let taken = &taken[..taken.len().min(batch)];
        let ids = taken.iter().map(|(id, _)| *id);
        Found {
            ids: ids.clone().min().zip(ids.max()),
            last: taken.iter().map(|(_, of)| partition(*of)).max(),
            is_full: taken.len() == batch,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Claims go on until every pending record is claimed, from any beginning, with records that commit late
        /// and however often a claim reads the index.
        #[test]
        fn every_pending_record_is_claimed(
            partitions in prop::collection::vec(0_i64..256, 0..200),
            late in prop::collection::vec(0_i64..256, 0..20),
            by_index in prop::collection::vec(any::<bool>(), 500),
            begin in 0_i64..256,
            batch in 1_usize..40,
        ) {
            let ids = |partitions: &[i64], from| (from..).zip(partitions.iter().copied()).collect::<Vec<_>>();
            let mut pending = ids(&partitions, 100);
            let mut late = ids(&late, 1);
            let mut progress = Some(Progress::new(partition(begin)));
            let mut by_index = by_index.into_iter();
            while let Some(now) = progress {
                let Some(next) = by_index.next() else { break };
                let reading = now.next(next);
                let found = claim(&mut pending, reading, batch);
                pending.extend(late.pop());
                progress = now.after(reading, found);
            }
            prop_assert!(progress.is_none() || by_index.next().is_none());
            if progress.is_none() {
                // Each commit is followed by a claim, so records that came after the last claim are wanted again.
                prop_assert!(pending.len() <= 1, "{pending:?}");
            }
        }
    }

    #[test]
    fn a_backlog_is_claimed_in_the_order_of_ids_and_then_looked_for_by_the_index() {
        let found =
            |first, last, of, is_full| Found { ids: Some((first, last)), last: Some(partition(of)), is_full };
        let start = Progress::new(partition(3));
        let index = start.next(false);
        assert_eq!(index, Reading::Index { from: partition(3) });
        let backlog = start.after(index, found(40, 90, 9, true)).unwrap();
        assert_eq!(backlog.next(false), Reading::Ids { from: 40 });
        assert_eq!(backlog.next(true), Reading::Index { from: partition(9) });
        let further = backlog.after(backlog.next(false), found(41, 70, 200, true)).unwrap();
        assert_eq!(further.next(false), Reading::Ids { from: 71 });
        let end = further.after(further.next(false), found(71, 80, 200, false)).unwrap();
        assert_eq!(end.next(false), Reading::Index { from: Partition::FIRST });
        assert_eq!(end.after(end.next(false), found(1, 2, 3, false)), None);
    }

    #[test]
    fn claims_by_the_index_are_small() {
        let index = Reading::Index { from: Partition::FIRST };
        assert_eq!([index.limit(1000), index.limit(1), index.limit(0)], [125, 1, 0]);
        assert_eq!(Reading::Ids { from: 1 }.limit(1000), 1000);
    }

    #[test]
    fn the_leases_before_it_was_a_suspect_do_not_count() {
        assert_eq!([0, 1, 2, 3, 5].map(crashes_of_a_suspect), [0, 0, 0, 1, 3]);
    }

    #[test]
    fn two_renewals_may_fail() {
        assert_eq!(renew_after(Duration::from_secs(30)), Duration::from_secs(10));
    }

    #[test]
    fn who_passes_over_ids_meets_others() {
        assert!(!meets_others(5, 9, 5));
        assert!(meets_others(5, 10, 5) && meets_others(i64::MIN, i64::MAX, 1));
    }

    #[test]
    fn outcomes_wait_for_runs_beside_them_but_not_for_more_than_a_batch() {
        assert_eq!(gather_time(9, 10, true), GATHERED_FOR);
        assert_eq!([gather_time(10, 10, true), gather_time(9, 10, false)], [Duration::ZERO; 2]);
    }

    #[test]
    fn a_handler_has_enough_with_half_a_batch_or_its_share() {
        assert_eq!([1, 999, 1000].map(|batch| enough(batch, None)), [1, 500, 500]);
        assert_eq!([4000, 800, 7].map(|outside_runs| enough(1000, Some(outside_runs))), [500, 100, 1]);
    }

    #[test]
    fn a_claim_leaves_half_of_the_free_memory_to_other_handlers() {
        let limits = FetchLimits { batch_size: 1000, max_in_flight: 1200, max_in_flight_bytes: 100_000 };
        let sizes = |held, bytes| [false, true].map(|is_shared| claim_size(limits, held, bytes, is_shared));
        assert_eq!(sizes(0, 0), [1000, 600]);
        assert_eq!(sizes(200, 20_000), [800, 400], "100 bytes each");
        assert_eq!(sizes(10, 90_000), [1, 0], "9,000 bytes each");
        assert_eq!(sizes(1199, 100), [1, 1]);
        assert_eq!(sizes(1200, 100), [0, 0]);
    }
}
