//! Execute: the runs in their tasks, the calls of the user's code, and the outcome of each record.

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
