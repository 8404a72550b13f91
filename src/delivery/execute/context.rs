//! What is the same for all attempts of an instance.

use std::time::Duration;

use crate::{clock::Clock, handler::States, telemetry::Observers};

/// What attempts share.
pub(in crate::delivery) struct ExecContext {
    pub(in crate::delivery) states: States,
    pub(in crate::delivery) observers: Observers,
    pub(in crate::delivery) clock: Clock,
    /// How long others wait for a partition, less the write of the last outcome.
    pub(in crate::delivery) longest_hold: Duration,
}
