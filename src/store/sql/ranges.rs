//! Ids as ranges. Records that are delivered together mostly have neighbouring ids, and a database finds a range
//! with one descent of the index where a list of ids takes one descent per id.
//!
//! A range holds the ids of the list and no others, so a statement touches the same rows in both forms. InnoDB gets
//! lists nevertheless: it locks the row behind a range, which may belong to an open transaction.

use std::sync::Arc;

use super::{dialect::Dialect, statements::list};
use crate::record::RecordId;

/// The least number of ids per range, on average. Below it, PostgreSQL takes longer for ranges than for ids.
const LEAST_IDS: usize = 3;
/// The most ranges of a condition. SQLite compiles each range again and limits the depth of a condition.
const MOST_RANGES: usize = 16;

/// The first and the last id of each range of neighbours, in ascending order. `None` if a list of the ids is as good.
pub(super) fn ranges(ids: &[RecordId]) -> Option<Vec<(RecordId, RecordId)>> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(RecordId, RecordId)> = Vec::new();
    for id in sorted {
        match ranges.last_mut() {
            Some((_, last)) if id <= last.saturating_add(1) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    (ranges.len() * LEAST_IDS <= ids.len()).then_some(ranges)
}

/// The ids of a statement: the text that is replaced, and the condition in its place.
pub(super) fn among(dialect: &Dialect, ids: &[RecordId]) -> (&'static str, String) {
    const LIST: &str = "id IN ({ids})";
    let ranges = dialect.or_of_ranges.then(|| ranges(ids)).flatten();
    let text = match ranges.filter(|ranges| !ranges.is_empty() && ranges.len() <= MOST_RANGES) {
        Some(ranges) => {
            let ranges = ranges.iter().map(|(first, last)| format!("id BETWEEN {first} AND {last}"));
            format!("({})", ranges.collect::<Vec<_>>().join(" OR "))
        }
        None => LIST.replace("{ids}", &list(ids.iter().copied())),
    };
    (LIST, text)
}

/// The statement that writes the fence row and completions at once, in its two forms.
#[derive(Debug)]
pub(super) struct AtOnce {
    /// Takes the ids.
    by_id: Arc<str>,
    /// Takes the first ids of ranges, and their last ids as one parameter more.
    by_range: Arc<str>,
}

impl AtOnce {
    pub(super) fn new(by_id: &Arc<str>) -> Self {
        let ranges = "fence, unnest($5, $7) AS x (first, last) WHERE r.id BETWEEN x.first AND x.last";
        let by_range = by_id.replace("fence WHERE r.id = ANY ($5)", ranges);
        Self { by_id: Arc::clone(by_id), by_range: by_range.into() }
    }

    /// The statement for ranges if there are some, or for ids.
    pub(super) fn of(&self, has_ranges: bool) -> &Arc<str> {
        if has_ranges { &self.by_range } else { &self.by_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&[7, 5, 6, 1, 2, 3, 2]), Some(vec![(1, 3), (5, 7)]));
        assert_eq!(ranges(&[i64::MAX, i64::MAX - 1, i64::MAX - 2]), Some(vec![(i64::MAX - 2, i64::MAX)]));
    }

    #[test]
    fn each_settle_at_once_has_a_form_with_ranges() {
        for template in [
            include_str!("statements/postgres/settle_delete.sql"),
            include_str!("statements/postgres/settle_archive.sql"),
            include_str!("statements/postgres/settle_keep.sql"),
        ] {
            let at_once = AtOnce::new(&template.into());
            assert!(!at_once.of(false).contains("$7") && at_once.of(true).contains("$7"), "{template}");
            assert!(!at_once.of(true).contains("ANY"), "{template}");
        }
    }

    #[test]
    fn ids_without_neighbours_stay_a_list() {
        assert_eq!(ranges(&[1, 2, 4, 5]), None);
        assert_eq!(ranges(&[1, 2, 3, 5, 6, 7]), Some(vec![(1, 3), (5, 7)]));
        assert_eq!(ranges(&[1]), None);
    }

    #[test]
    fn a_range_holds_no_other_id() {
        let mut ids: Vec<RecordId> = (0..1_000).filter(|id| id % 10 != 3).collect();
        ids.reverse();
        let found = ranges(&ids).unwrap();
        let mut again: Vec<RecordId> = found.into_iter().flat_map(|(first, last)| first..=last).collect();
        again.reverse();
        assert_eq!(again, ids);
    }
}
