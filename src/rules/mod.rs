//! The rules: every decision Keylane makes, as functions of their arguments.
//!
//! No `async`, no clock, no randomness, no IO in this folder (`tests/tidy.rs` checks it). Time comes
//! in as a [`Duration`](std::time::Duration) on some monotonic clock, chance as a number in `0..1`,
//! the world as a view. The same functions run in production, in simulations and in model checks.
//!
//! | rule | decides |
//! | --- | --- |
//! | [`assignment`] | which instance should own which partition |
//! | [`liveness`] | which instances have gone silent, and which will not let go |
//! | [`lease`] | how long an instance may trust its own last heartbeat |
//! | [`lifecycle`] | what follows from an attempt, and what is written |
//! | [`retry`] | whether and when a failed record is tried again |
//! | [`pacing`] | how many records to fetch, and when to fetch again |
//! | [`crashes`] | what crashes of its owners say about a record |
//! | [`reading`] | which statements find the pending records |
//! | [`watermark`] | from which id on a fetch must read |
//! | [`witnesses`] | the same while transactions stay open |

pub mod assignment;
mod backoff;
pub mod crashes;
pub mod lease;
pub mod lifecycle;
pub mod liveness;
pub mod pacing;
pub mod rate;
pub mod reading;
pub mod retry;
pub mod watermark;
pub mod witnesses;
