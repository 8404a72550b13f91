//! Claims: the records of claimed mode in memory, what to claim next, and the outcomes that wait for a write.
//!
//! There is no order, so there are no lanes: each record waits in the queue of its handler, with the token of
//! its claim as its generation.

mod outcomes;
mod pace;
mod queues;
mod station;
mod wants;
mod writer;

pub(super) use station::Claims;
pub(super) use wants::Wanted;
pub(super) use writer::{Writer, Written};
