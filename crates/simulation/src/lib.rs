//! A whole cluster on one thread: processes of a service, each with a separate clock, on one database in
//! memory, under faults. One number decides all of it, so any run can be repeated.
//!
//! * A [`Plan`] is drawn from the seed: settings, handlers, writers, and a list of [faults](Fault), each with
//!   its time. Each actor has separate dice, so leaving out a fault changes nothing else.
//! * A `node` is a process: a separate, paused runtime. Nodes take turns of some milliseconds. A frozen node
//!   gets no turn; later its clock jumps, as a stopped process sees it. A crash drops the runtime.
//! * A `client` is one way to the database: latency, failures before and after the effect, calls that hang.
//! * The recorder gives all events to the [judge](keylane_checker::Judge): the actions of producers, handlers
//!   and operators, and the content of the database after each step.
//!
//! The library is the real one, from the dispatcher to the rules. Only the database is a model
//! (`keylane::memory`). `tests/conformance` shows that it behaves as the real ones.

mod call;
mod campaign;
mod client;
mod fate;
mod fault;
mod handlers;
mod node;
mod operator;
mod panics;
mod plan;
mod readers;
mod recorder;
mod shared;
mod shrink;
mod stray;
mod time;
mod told;
mod weather;
mod world;
mod writer;

pub use campaign::{Campaign, Failure};
pub use fault::{Fault, Kind};
pub use plan::Plan;
pub use shrink::shrink;
pub use world::{Outcome, play};

/// Whether the same seed gives the same run: only with this flag does tokio's `select!` take its seed.
pub const REPLAYS: bool = cfg!(tokio_unstable);
