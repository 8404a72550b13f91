//! The lanes: the records in memory by key and handler, and what keeps each lane in order.

mod admission;
mod book;
mod fetches;
mod lane;
mod limits;
mod memory;
mod ready;
mod releases;
mod station;
mod stop;
mod suspects;
mod table;
mod turns;
mod wishes;

pub(super) use station::Lanes;
pub(super) use wishes::Wishes;
