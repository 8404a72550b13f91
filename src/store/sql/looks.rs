//! The lists of looks at the table, for databases that take them in the text of a statement.

use std::collections::HashSet;

use super::dialect::list;
use crate::{
    partition::PartitionSet,
    record::RecordId,
    store::{Sweep, sql::records::numbers},
};

type Lists = Vec<(&'static str, String)>;

/// A list that is never empty: no record has the id 0.
fn skipped(ids: impl IntoIterator<Item = RecordId>) -> String {
    list(ids.into_iter().chain([0]))
}

pub(super) fn fetch_lists(partitions: PartitionSet, skip: &[RecordId], limit: usize) -> Lists {
    vec![
        ("{partitions}", numbers(partitions)),
        ("{skip}", skipped(skip.iter().copied())),
        ("{limit}", limit.to_string()),
    ]
}

pub(super) fn probe_lists(partitions: PartitionSet) -> Lists {
    vec![("{partitions}", numbers(partitions))]
}

pub(super) fn sweep_lists(sweep: &Sweep<'_>) -> Lists {
    vec![
        ("{partitions}", numbers(sweep.partitions)),
        ("{from}", sweep.from.to_string()),
        ("{to}", sweep.from.saturating_add(sweep.reach).to_string()),
        ("{skip}", skipped(sweep.skip_above())),
        ("{limit}", sweep.limit.to_string()),
    ]
}

pub(super) fn below_lists(sweep: &Sweep<'_>) -> Lists {
    vec![("{partitions}", numbers(sweep.partitions)), ("{to}", sweep.from.to_string())]
}

/// The first of the pending ids below a sweep that are not in memory, if there are any.
pub(super) fn late_lists(mut below: Vec<RecordId>, sweep: &Sweep<'_>) -> Option<Lists> {
    let skip: HashSet<RecordId> = sweep.skip.iter().copied().collect();
    below.retain(|id| !skip.contains(id));
    below.sort_unstable();
    below.truncate(sweep.limit);
    (!below.is_empty()).then(|| vec![("{ids}", list(below))])
}
