//! Judges the history that a cluster has written: histories in, a verdict out.
//!
//! A history is a sequence of [`Event`]s on one clock: what producers scheduled and committed, which calls of
//! handlers began and ended, the content of the database, the owners of partitions, and the faults. A
//! [`Judge`] takes one event after another and compares them with the numbered [`Invariant`]s. The judge is
//! independent of the library: it shares no type, no table and no rule, so that a mistake of the library
//! cannot hide here.
//!
//! Unknown facts stay unknown: a commit with a lost reply may have happened or not, and a call of a frozen
//! instance is excused as far as [`Invariant::Lease`] says, no further.

mod event;
mod expect;
pub mod history;
mod invariant;
mod journal;
mod judge;
mod report;

pub use event::{CallKind, Called, End, Event, Status, What};
pub use expect::{Backoff, Expect, Order, Repeats, Takeover, Truth};
pub use invariant::Invariant;
pub use journal::{Journal, OpenCall};
pub use judge::Judge;
pub use report::{Report, Violation};
