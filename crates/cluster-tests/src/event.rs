//! The event of the tests: a step of a key.

use keylane::OutboxEvent;
use serde::{Deserialize, Serialize};

/// The `step`th event of key `key`, from 0.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "chaos.step", key = "key-{key}")]
pub struct Step {
    /// Which key.
    pub key: u32,
    /// Its place in the key.
    pub step: u32,
}

/// The key and the step that end their process in the mode `deadly`.
pub const DEADLY: (u32, u32) = (7, 0);
