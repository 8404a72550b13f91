//! Execute: the runs in their tasks, the calls of the user's code, and the outcome of each record.

mod attempt;
mod call;
mod context;
mod executor;
mod flight;
mod pilot;
mod run;
mod runs;
mod slot;
mod task;
mod tracked;
mod transactional;
mod watch;

pub(super) use context::ExecContext;
pub(super) use executor::{Event, Executor, ExecutorSetup};
