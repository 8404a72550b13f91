//! Settling: from outcomes to durable writes.

mod queue;
mod settler;

pub(super) use queue::SettleQueue;
pub(super) use settler::{Evicted, Settler, Written};
