//! `keylane relay` as its users run it: a process, rows by SQL, a real broker.

mod broker;
mod check;
mod check_elsewhere;
mod databases;
mod dead_letters;
mod forms;
mod health;
mod process;
mod signals;
mod stage;
mod webhook;
