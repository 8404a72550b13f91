//! The pauses between tries to reach the database.

use std::time::Duration;

use crate::{delivery::roll, instance::InstanceId, rules::pacing};

/// How often the database was tried in vain.
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
    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        pacing::pause_after(self.tries, roll(self.seed, self.tries))
    }
}
