//! Records on their way into a database, and the statements that insert them.

use keylane::{
    Name,
    inner::{Due, NewRecord, Tables},
    partition::Partition,
    sql::{SqlDatabase, Statement, Step, Value},
    sqlx::{MySql, Postgres, Sqlite},
};
use uuid::Uuid;

/// The parts of a record in its statements.
pub(crate) fn record(key: &str) -> NewRecord {
    NewRecord {
        event_id: Uuid::from_u128(7),
        partition: Partition::of(key),
        key: key.to_owned(),
        handler: Name::from("mailer"),
        record_type: Name::from("order.placed"),
        content_type: Name::from("application/json"),
        payload: Vec::new(),
        headers: Default::default(),
        due: Due::Now,
        deadline: None,
        dedup_key: None,
    }
}

/// The statements that schedule a record, for each database.
pub(crate) fn statements(
    tables: &Tables,
    record: &NewRecord,
    dedup_key: Option<&str>,
) -> [Vec<Statement>; 3] {
    [
        of::<Postgres>(tables, record, dedup_key),
        of::<MySql>(tables, record, dedup_key),
        of::<Sqlite>(tables, record, dedup_key),
    ]
}

fn of<DB: SqlDatabase>(tables: &Tables, record: &NewRecord, dedup_key: Option<&str>) -> Vec<Statement> {
    let statements = DB::statements(&DB::producer(tables), std::slice::from_ref(record), dedup_key, true);
    statements.unwrap_or_else(|error| panic!("{}: {error}", DB::NAME))
}

/// The parameters of the insert: identity, partition, key, handler, record type, media type, payload, headers.
pub(crate) fn inserted(statements: &[Statement]) -> &[Value] {
    let insert = statements.iter().find(|statement| statement.step == Step::Insert);
    &insert.expect("a statement that inserts").values
}

/// A parameter that is a text, which some databases take as bytes.
pub(crate) fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        Value::Bytes(bytes) => std::str::from_utf8(bytes).expect("a text"),
        other => panic!("{other:?} is no text"),
    }
}
