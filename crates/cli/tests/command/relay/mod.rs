//! `keylane relay` as its users run it: a process, rows by SQL, a real broker.

#[path = "../../../../sink-kafka/tests/kafka/away.rs"]
pub(crate) mod away;
mod broker;
mod check;
mod check_elsewhere;
#[path = "../../../../sink-kafka/tests/kafka/clients.rs"]
mod clients;
mod databases;
mod dead_letters;
mod forms;
mod health;
#[path = "../../../../sink-kafka/tests/kafka/leaders.rs"]
mod leaders;
mod outage;
mod process;
mod signals;
mod stage;
mod webhook;
