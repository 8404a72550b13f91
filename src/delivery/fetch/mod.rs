//! Fetch: decides when to ask the database, and for what, and takes the answers.

mod budget;
mod head_search;
mod hot_handlers;
mod listening;
mod planner;
mod query;
mod stop_reads;

pub(super) use planner::{Answer, Planner, Step};
pub(super) use query::{FetchResult, fetch};
