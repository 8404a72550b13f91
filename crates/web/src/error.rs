//! What can go wrong, as values.

use std::time::Duration;

use crate::body::BoxError;

/// Why a store has not answered a guard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store refused the call, or could not be reached.
    #[error("web: {call}: {source}")]
    Store {
        /// The name of the call.
        call: &'static str,
        /// The error of its driver.
        source: BoxError,
    },
    /// The store has not answered in time. Whether the call was carried out is not known.
    #[error("web: {call}: no answer within {limit:?}")]
    NoAnswer {
        /// The name of the call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The store has a record that no guard of this version has written.
    #[error("web: {call}: what the store has is not of this version: {problem}")]
    Answer {
        /// The name of the call.
        call: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The lease of a claim has ended, and another execution has its key. Roll the transaction back.
    #[error("web: the key {key:?} is another execution's: its lease has ended; roll the transaction back")]
    Lost {
        /// The idempotency key.
        key: String,
    },
    /// The connection is in no transaction that sqlx knows of.
    #[error("web: the connection is in no transaction: begin one through sqlx")]
    NoTransaction,
    /// The tables are missing, or are of another version.
    #[error("web: the tables have version {found}, but this build needs {needed}: run SqlStore::migrate")]
    Schema {
        /// The version of the tables; 0 if there are none.
        found: i64,
        /// The version that this build creates.
        needed: i64,
    },
}

/// Why the settings of a guard are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The name of a limit or a scope.
    #[error("web: the {what} {name:?} must have 1 to 64 letters, digits, `-`, `_` and `.`")]
    Name {
        /// `name of a limit` or `scope`.
        what: &'static str,
        /// What was given, cut after 128 characters.
        name: String,
    },
    /// A rate limit.
    #[error(
        "web: a limit of {capacity} requests at once and {per_second} per second: the first must be 1 to 1,000,000, \
         the second at least one per day"
    )]
    Limit {
        /// The requests at once.
        capacity: u32,
        /// The tokens per second.
        per_second: f64,
    },
    /// A duration.
    #[error("web: the {what} is {given:?}, but must be {least:?} to {most:?}")]
    Duration {
        /// Which one.
        what: &'static str,
        /// What was set.
        given: Duration,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// A name of tables.
    #[error("web: {problem}")]
    Tables {
        /// Which name, its limit and what it may have.
        problem: String,
    },
    /// The address of a store.
    #[error(
        "web: the address of Redis cannot be read: write it as redis://host:port/ or rediss://host:port/"
    )]
    Address,
}
