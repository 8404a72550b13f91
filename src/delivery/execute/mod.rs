//! Executing: runs in their tasks, up to the call of the user's code, and how each record has ended.

mod attempt;
mod call;
mod context;
mod executor;
mod flight;
mod run;
mod slot;
mod task;
mod tracked;
mod transactional;

pub(super) use context::ExecContext;
pub(super) use executor::{Event, Executor, ExecutorSetup};
