//! What the macros accept: each file has uses of one kind, and is compiled with all lints.

#![allow(dead_code, reason = "most of it need only compile")]

mod batch;
mod events;
mod fallback;
mod generic;
pub mod messages;
pub mod names;
mod options;
mod renamed_crate;
mod transactional;
mod typed;
mod written_by_macros;
