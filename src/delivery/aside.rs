//! Outcomes that the database refuses: a trigger of the user's raises, or a value does not fit.
//!
//! Such an outcome is set aside and tried again, at growing distances, for as long as this instance owns its
//! partition. Its lane waits, or a later record would be delivered before an earlier one is settled; all
//! other lanes go on.

use std::time::Duration;

use tokio::time::Instant;

use super::{outcomes::Pending, pipeline::Pipeline};
use crate::{ownership::Permit, record::RecordId};

/// Pauses between two tries: from the first, doubling, to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// An outcome that waits for its next try.
pub(super) struct Aside {
    pending: Pending,
    at: Instant,
}

impl Pipeline {
    /// Sets aside what was refused of a batch. Returns the rest of it.
    pub(super) fn set_aside(&mut self, written: Vec<Pending>, refused: &[RecordId]) -> Vec<Pending> {
        let (aside, rest): (Vec<_>, Vec<_>) =
            written.into_iter().partition(|pending| refused.contains(&pending.settlement.id));
        for mut pending in aside {
            if pending.pause.is_zero() {
                self.lanes.wait_for_outcome(&pending.lane);
            }
            pending.pause = (pending.pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
            self.aside.push(Aside { at: Instant::now() + pending.pause, pending });
        }
        rest
    }

    /// Puts what is due among the outcomes again, and gives up what another instance owns by now.
    pub(super) fn take_up_aside(&mut self) {
        let now = Instant::now();
        for aside in std::mem::take(&mut self.aside) {
            let Aside { pending, at } = aside;
            let owned = pending.permit.as_ref().is_some_and(Permit::is_current);
            match owned {
                true if at > now => self.aside.push(Aside { pending, at }),
                true => self.outcomes.push(pending),
                false => {
                    self.lanes.outcome_goes_on(&pending.lane);
                    self.lanes.give_back(pending.settlement.id);
                }
            }
        }
    }

    /// When the next of them is due.
    pub(super) fn next_aside(&self) -> Option<Instant> {
        self.aside.iter().map(|aside| aside.at).min()
    }
}
