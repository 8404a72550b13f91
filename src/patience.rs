//! The pauses between tries to reach the database.

use std::time::Duration;

use crate::{delivery::roll, instance::InstanceId, rules::pacing};

/// The pauses between tries to reach the database, and the number of failed tries.
pub(crate) struct Patience {
    seed: i64,
    tries: u32,
}

impl Default for Patience {
    fn default() -> Self {
        // The last bits of the identity are random.
        Self { seed: InstanceId::generate().as_uuid().as_u128() as i64, tries: 0 }
    }
}

impl Patience {
    /// Counts a failed try, and returns the pause before the next one.
    pub(crate) fn next(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        pacing::pause_after(self.tries, roll(self.seed, self.tries))
    }
}
