//! The lines of the history that open things keep.

use std::sync::Arc;

use crate::{Event, Invariant, Violation};

/// An event with its position in the history.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) position: u64,
    pub(super) event: Event,
}

pub(super) type Line = Arc<Numbered>;

/// A violation that these lines show.
pub(super) fn violation<'a>(
    invariant: Invariant,
    text: impl Into<String>,
    lines: impl IntoIterator<Item = Option<&'a Line>>,
) -> Violation {
    let mut lines: Vec<&Line> = lines.into_iter().flatten().collect();
    lines.sort_by_key(|line| line.position);
    lines.dedup_by_key(|line| line.position);
    let excerpt = lines.into_iter().map(|line| line.event.clone()).collect();
    Violation { invariant, text: text.into(), excerpt }
}
