//! What all attempts of an instance have in common.

use std::time::Duration;

use crate::{clock::Clock, handler::States, targets::Targets, telemetry::Observers};

/// The context of all attempts of one instance.
pub(in crate::delivery) struct ExecContext {
    pub(in crate::delivery) states: States,
    pub(in crate::delivery) observers: Observers,
    pub(in crate::delivery) clock: Clock,
    /// The targets that are away. Written by each attempt.
    pub(in crate::delivery) targets: Targets,
    /// How long a call may hold a partition that is to be drained: the hand-over timeout less the write of
    /// the last outcome.
    pub(in crate::delivery) longest_hold: Duration,
}
