//! A whole cluster on one thread: processes of a service, each with a clock of its own, on one database in
//! memory, under faults. One number decides everything, so what was seen once can be seen again.
//!
//! * A [`Plan`] is drawn from the seed: settings, handlers, writers, and a list of [faults](Fault), each with its
//!   time. Each actor has dice of its own, so leaving out a fault changes nothing else.
//! * A `node` is a process: a runtime of its own, paused. Nodes take turns of some milliseconds. A node that is
//!   frozen gets no turn; later its clock jumps, as a process sees it that was stopped. A crash drops the runtime.
//! * A `client` is one way to the database: latency, failures before and after the effect, calls that hang.
//! * The recorder gives all that happens to the [judge](keylane_checker::Judge): what producers, handlers and
//!   operators do, and what the database contains after each step.
//!
//! The library is the real one, from the dispatcher to the rules. Only the database is a model
//! (`keylane::memory`), whose likeness to the real ones `tests/conformance` shows.

mod campaign;
mod client;
mod fate;
mod fault;
mod handlers;
mod node;
mod operator;
mod panics;
mod plan;
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

/// Whether the same seed gives the same run: tokio's `select!` takes its seed only under this flag.
pub const REPLAYS: bool = cfg!(tokio_unstable);
