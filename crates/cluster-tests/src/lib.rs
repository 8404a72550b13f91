//! What a worker process and the tests that drive it share: the event, the settings, the ledger.

pub mod event;
pub mod ledger;
pub mod settings;
