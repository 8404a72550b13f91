//! Judges what a cluster did by what it wrote down: histories in, a verdict out.
//!
//! A history is a sequence of [`Event`]s on one clock: what producers scheduled and committed, which calls of handlers
//! began and ended, what the database contains, who owned which partition, and which faults there were. A [`Judge`]
//! takes one event after another and holds them against the numbered [`Invariant`]s. It knows nothing of the library:
//! no type, no table, no rule is shared, so that a mistake there cannot hide here.
//!
//! What nobody can know stays unknown: a commit whose reply was lost may have happened or not, and a call of an
//! instance that was frozen is excused as far as [`Invariant::Lease`] says, no further.

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
