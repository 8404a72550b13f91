//! What a worker process and the tests that drive it share: the event, the settings, the journal.

pub mod event;
pub mod journal;
pub mod settings;
