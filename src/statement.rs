//! A statement as plain data: its text and its parameters.

use uuid::Uuid;

/// A statement with its parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statement {
    /// What it is for.
    pub step: Step,
    /// With `$1`, `$2`, … on PostgreSQL, `?` on MySQL and MariaDB, and on SQLite. It is the same for every event that has the same
    /// options, so that it may stay prepared.
    pub text: String,
    /// What the parameters are, in their order.
    pub values: Vec<Value>,
}

/// What a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Notes the dedup key, where there is one. It writes one row, or none if the key was there.
    NoteDedupKey,
    /// Locks the key of the event until the transaction ends, with `schedule.order = "strict"` on PostgreSQL and MySQL.
    /// What it returns has no meaning. Transactions with several events take these locks in the order of their keys, or
    /// two of them may wait for each other.
    LockKey,
    /// Inserts a record.
    Insert,
}

/// A parameter, of the type that the text expects in its place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A whole number of 64 bits.
    Int(i64),
    /// A whole number of 16 bits; only on PostgreSQL, which tells them apart.
    SmallInt(i16),
    /// A text.
    Text(String),
    /// Bytes: `bytea`, `VARBINARY` or `BLOB`.
    Bytes(Vec<u8>),
    /// A `uuid`; only on PostgreSQL, the others have 16 bytes.
    Uuid(Uuid),
    /// A text that is null.
    Null,
}

impl Statement {
    /// Whether the answer of the database says that the event is a duplicate, so that the other statements are left
    /// out. `rows` is how many rows this statement has written.
    pub fn is_duplicate(&self, rows: u64) -> bool {
        self.step == Step::NoteDedupKey && rows == 0
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}
