//! The rules: every decision of Keylane, as functions of their arguments.
//!
//! No `async`, no clock, no randomness, no IO in this folder (`tests/tidy` checks it). A time is an
//! argument: a [`Duration`](std::time::Duration) on some monotonic clock. Chance is an argument: a number in
//! `0..1`. The state of the cluster is a view. The same functions run in production, in simulations and in
//! model checks.
//!
//! This module is public so that everybody can read and test the decisions. Version numbers cover only what
//! the root exports of it, [`RetryPolicy`](retry::RetryPolicy) and [`Backoff`](retry::Backoff): all other
//! items change with any release.
//!
//! | rule | decides |
//! | --- | --- |
//! | [`assignment`] | the owner of each partition |
//! | [`liveness`] | which instances have gone silent, and which do not release |
//! | [`lease`] | how long an instance may trust its last heartbeat |
//! | [`lifecycle`] | the next step after an attempt, and what is written |
//! | [`retry`] | whether and when a failed record is tried again |
//! | [`pacing`] | how many records to fetch, and when to fetch again |
//! | [`rate`] | when a handler with a rate limit may be called again |
//! | [`sharing`] | how many calls and records of the memory a handler may have |
//! | [`claim`] | what to claim next in claimed mode, and when to renew |
//! | [`crashes`] | how crashes of the owners count against a record |
//! | [`reading`] | which statements find the pending records |
//! | [`horizon`] | nothing: it is what the database tells of its ids |
//! | [`watermark`] | the id at which a fetch must begin |
//! | [`witnesses`] | the same, while transactions stay open |
//! | [`id_ranges`] | which ids are not read again when an open transaction ends |

pub mod assignment;
mod backoff;
pub mod claim;
pub mod crashes;
pub mod horizon;
pub mod id_ranges;
pub mod lease;
pub mod lifecycle;
pub mod liveness;
pub mod pacing;
pub mod rate;
pub mod reading;
pub mod retry;
pub mod sharing;
pub mod watermark;
pub mod witnesses;
