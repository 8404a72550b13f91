//! The delivery wing: records come from the database, go through four stations, and their outcomes go back.
//!
//! ```text
//!             ┌─────────────── dispatcher: events in, commands out ───────────────┐
//!             │                                                                   │
//!   database ─┴▶ fetch ──records──▶ lanes ──runs──▶ execute ──outcomes──▶ lanes ──┴─writes──▶ settle ─▶ database
//! ```
//!
//! Each station owns its state and shows nobody its fields; none knows another. The [`dispatcher`] alone knows
//! all four: it runs their tasks, takes what they hand over ([`work`], [`outcome`]) and passes it on.
//!
//! * **fetch** decides when to ask the database, for which partitions and for how many records (`planner`), asks
//!   (`query`), and keeps what memory is shared by (`budget`). A fetch reads the pending records from the low
//!   watermark on, in id order, without those in memory.
//! * **lanes** keep each key of each handler in order. A record is admitted to its lane, waits for its run, and
//!   stays in memory until its outcome is durable. What the lanes want of other stations, they *wish* (`wishes`).
//! * **execute** runs the runs in tasks and calls the user's code, in one place (`call`). Whatever ends a run ends
//!   in a report of how each of its records has ended.
//! * **settle** writes outcomes in batches, each under the instance's fence row, and leaves no reply in doubt.
//!
//! A *permit* rides with each record from its fetch until its outcome is durable: a partition is handed over when
//! its permits are gone. A lane that stands still has a row in `outbox_lane`; its later records are moved out of
//! the pending set as they are met (status held), so that no fetch pays for them twice.
//!
//! | word | meaning |
//! | --- | --- |
//! | lane | the queue of one key for one handler |
//! | run | the records of a lane that one task handles, one call after another or as a batch |
//! | flight | a run under way; whatever ends it, it reports |
//! | stop | a lane that stands still, and the record that causes it |
//! | hold | to move a record of a stopped lane out of the pending set |
//! | stale | rows of a lane that changed since the fetch under way began: they do not count |
//! | missed | a record that was fetched and not admitted, or requeued: the next fetch begins at the head |
//! | hot | a partition one of whose lanes wants more than its share of memory: it is fetched by itself |
//! | hot handler | a handler that wants more than its share of memory: it is fetched by itself, too |
//! | exhausted | a hot partition whose last fetch brought nothing that could be admitted |
//! | releasing | a lane whose held records return in steps |
//! | suspected | a record or a partition that earlier processes have crashed with |
//! | refused | a write that the database rejects by itself: it is tried again, its lane waits |
//! | lost | a record of which nobody knows what its call has done: it is fetched again |

use std::time::Duration;

mod config;
mod dispatcher;
mod execute;
mod fetch;
#[cfg(test)]
mod fixtures;
mod lanes;
mod outcome;
mod resolve;
mod roll;
mod settle;
mod signals;
mod work;

pub use config::DeliveryConfig;
pub(crate) use dispatcher::{Dispatcher, Ended, Setup};
pub(crate) use roll::roll;

/// The pause after a database call that failed.
const ERROR_PAUSE: Duration = Duration::from_millis(200);
