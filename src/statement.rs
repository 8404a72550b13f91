//! A statement as plain data: its text and its parameters.

use uuid::Uuid;

/// A statement with its parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statement {
    /// The purpose of the statement.
    pub step: Step,
    /// The text, with `$1`, `$2`, … on PostgreSQL and `?` on MySQL, MariaDB and SQLite. It is the same for
    /// every event with the same options, so it may stay prepared.
    pub text: String,
    /// The parameters in their order.
    pub values: Vec<Value>,
}

/// The purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Inserts the dedup key, if the event has one. Writes one row, or none if the key exists.
    InsertDedupKey,
    /// Locks the key of the event until the transaction ends, with `schedule.order = "strict"` on PostgreSQL
    /// and MySQL. The result has no meaning. If a transaction has several events, it must take these locks in
    /// the order of their keys, because two transactions could otherwise wait for each other.
    LockKey,
    /// Inserts a record.
    Insert,
}

/// A parameter, in the type that the text expects.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An integer of 64 bits.
    Int(i64),
    /// An integer of 16 bits. Only on PostgreSQL, which has separate types.
    SmallInt(i16),
    /// A text.
    Text(String),
    /// Bytes: `bytea`, `VARBINARY` or `BLOB`.
    Bytes(Vec<u8>),
    /// A `uuid`. Only on PostgreSQL; the other databases take 16 bytes.
    Uuid(Uuid),
    /// A null text.
    Null,
}

impl Statement {
    /// Whether the event is a duplicate, so that the other statements are left out. `rows` is the number of
    /// rows that this statement has written.
    pub fn is_duplicate(&self, rows: u64) -> bool {
        self.step == Step::InsertDedupKey && rows == 0
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
