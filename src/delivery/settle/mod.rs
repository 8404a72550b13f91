//! Settle: writes outcomes until they are durable.

mod queue;
mod settler;

pub(super) use queue::SettleQueue;
pub(super) use settler::{Evicted, Settler, Written};
