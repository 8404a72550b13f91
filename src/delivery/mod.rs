//! The delivery wing: records come from the database, go through four stations, and their outcomes go back.
//!
//! ```text
//!             ┌─────────────── dispatcher: events in, commands out ───────────────┐
//!             │                                                                   │
//!   database ─┴▶ fetch ──records──▶ lanes ──runs──▶ execute ──outcomes──▶ lanes ──┴─writes──▶ settle ─▶ database
//! ```
//!
//! Each station owns its state, its fields are private, and no station knows another. Only the [`dispatcher`]
//! knows all four: it runs their tasks and passes on what they hand over ([`work`], [`outcome`]).
//!
//! * **fetch** decides when to read from the database, which partitions and how many records (`planner`),
//!   reads (`query`), and shares memory (`budget`). A fetch reads the pending records from the low watermark
//!   on, in id order, without those in memory.
//! * **lanes** keep each key of each handler in order. A record is admitted to its lane, waits for its run, and
//!   stays in memory until its outcome is durable. If the lanes need another station, they add a *wish* (`wishes`).
//! * **execute** runs the runs in tasks and calls the user's code, in one place (`call`). Each run ends with a
//!   report of the outcome of each of its records.
//! * **settle** writes outcomes in batches, each under the instance's fence row, and leaves no reply in doubt.
//!
//! In claimed mode the [`claimer`] takes the place of the dispatcher. It knows **execute** and one other station:
//!
//! * **claims** decides what to claim and when to renew, keeps the claimed records by handler, and collects their
//!   outcomes. Its `writer` writes them.
//!
//! A *permit* goes with each record from its fetch until its outcome is durable: a partition is handed over
//! once it has no permits. A stopped lane has a row in `outbox_lane`; a fetch that meets a later record of it
//! moves that record out of the pending set (status held), so that no fetch reads it twice.
//!
//! | word | meaning |
//! | --- | --- |
//! | lane | the queue of one key for one handler |
//! | run | the records of a lane that one task handles, one call after another or as a batch |
//! | flight | a run under way; every end of its task leads to a report |
//! | stop | a lane that stands still, and the record that causes it |
//! | hold | to move a record of a stopped lane out of the pending set |
//! | stale | rows of a lane that changed since the fetch under way began: they do not count |
//! | missed | a record that was fetched and not admitted, or requeued: the next fetch begins at the head |
//! | hot | a partition with a lane that fills more than its share of memory: it is fetched by itself |
//! | hot handler | a handler that fills more than its share of memory: it is fetched by itself, too |
//! | share | the part of the calls and of the memory that the runs of one handler may take |
//! | exhausted | a hot partition whose last fetch brought nothing that could be admitted |
//! | releasing | a lane whose held records return in steps |
//! | suspected | a record or a partition during whose work earlier processes have crashed |
//! | refused | a write that the database rejects even alone: it is tried again, and its lane waits |
//! | lost | a record whose call has an unknown end: it is fetched again |

use std::time::Duration;

mod background;
mod claimer;
mod claims;
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
mod shares;
mod signals;
mod timers;
mod work;

pub(crate) use claimer::{Claimer, ClaimerSetup};
pub use config::DeliveryConfig;
pub(crate) use dispatcher::{Dispatcher, Ended, Setup};
pub(crate) use roll::roll;

/// The pause after a database call that failed.
const ERROR_PAUSE: Duration = Duration::from_millis(200);
