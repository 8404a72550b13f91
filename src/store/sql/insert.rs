//! The texts, parameters and columns of an insert.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    dialect::{Dialect, Family},
    statements::{Statements, filled},
};
use crate::{
    partition::Partition,
    record::{Headers, NewRecord},
    statement::Value,
    store::Tables,
};

/// What the calls on the user's connection know of an outbox, made once per outbox.
pub struct Producer {
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only the locks of PostgreSQL hash the names of the tables")
    )]
    pub(super) tables: Tables,
    pub(super) sql: Statements,
    /// The complete insert of one record without extra columns.
    insert_one: Arc<str>,
}

impl Producer {
    pub(super) fn new(dialect: &Dialect, family: Family, tables: &Tables) -> Self {
        let sql = Statements::render(dialect, family, tables);
        let insert_one = rows_text(dialect, &sql.insert_rows, &[], 1);
        Self { tables: tables.clone(), sql, insert_one }
    }
}

/// Records of one insert. All have the same headers, extra columns and extra values.
pub(crate) struct Insert<'a> {
    pub(crate) producer: &'a Producer,
    pub(crate) rows: &'a [NewRecord],
    pub(crate) extras: Vec<Extra>,
}

/// Columns that only some records have.
pub(crate) struct Extra {
    pub(crate) columns: &'static str,
    /// The written expression, with `@` for the parameter.
    pub(crate) expression: String,
    pub(crate) value: Value,
}

/// The number of parameters that every record has.
const EVERY: usize = 8;

impl Insert<'_> {
    /// The text for this many rows as groups of parameters.
    pub(crate) fn text(&self, dialect: &Dialect, rows: usize) -> Arc<str> {
        match rows {
            1 if self.extras.is_empty() => Arc::clone(&self.producer.insert_one),
            _ => rows_text(dialect, &self.producer.sql.insert_rows, &self.extras, rows),
        }
    }

    /// The parameters of a record, in the order of the columns.
    pub(crate) fn values(&self, family: Family, row: &NewRecord) -> impl Iterator<Item = Value> {
        let values: [Value; EVERY] = [
            uuid_value(family, row.event_id),
            partition_value(family, row.partition),
            key_value(family, &row.key),
            row.handler.as_str().into(),
            row.record_type.as_str().into(),
            row.content_type.as_str().into(),
            row.payload.clone().into(),
            headers_text(&row.headers).map_or(Value::Null, Value::Text),
        ];
        values.into_iter().chain(self.extras.iter().map(|extra| extra.value.clone()))
    }
}

/// The insert of this many rows, each a group of parameters. Parameters are numbered across the rows.
fn rows_text(dialect: &Dialect, sql: &str, extras: &[Extra], rows: usize) -> Arc<str> {
    let width = EVERY + extras.len();
    let row = |row: usize| {
        let parameters = (1..=EVERY).map(|number| dialect.parameter(row * width + number));
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        format!("({parameters}{})", extra_values(dialect, extras, row * width))
    };
    let rows = (0..rows).map(row).collect::<Vec<_>>().join(", ");
    fill_extras(sql, extras, &[("{rows}", rows)])
}

/// Fills the extra columns and these values into the insert of a producer.
pub(super) fn fill_extras(sql: &str, extras: &[Extra], values: &[(&str, String)]) -> Arc<str> {
    let columns: String = extras.iter().map(|extra| extra.columns).collect();
    filled(&sql.replace("{extra_columns}", &columns), values).into()
}

/// The expressions of the extra values, whose parameters follow `before` and those that every record has.
pub(super) fn extra_values(dialect: &Dialect, extras: &[Extra], before: usize) -> String {
    let values = extras.iter().zip(before + EVERY + 1..);
    values.map(|(extra, number)| extra.expression.replace('@', &dialect.parameter(number))).collect()
}

pub(crate) fn uuid_value(family: Family, uuid: Uuid) -> Value {
    match family {
        Family::Postgres => Value::Uuid(uuid),
        Family::MySql | Family::Sqlite => Value::Bytes(uuid.as_bytes().to_vec()),
    }
}

pub(crate) fn partition_value(family: Family, partition: Partition) -> Value {
    match family {
        Family::Postgres => Value::SmallInt(i16::from(partition.number())),
        Family::MySql | Family::Sqlite => Value::Int(i64::from(partition.number())),
    }
}

/// A key in the type of its column: bytes on MySQL, where texts have a collation.
pub(crate) fn key_value(family: Family, key: &str) -> Value {
    match family {
        Family::MySql => key.as_bytes().to_vec().into(),
        Family::Postgres | Family::Sqlite => key.into(),
    }
}

/// Headers in their stored form: JSON text, or `None` if there are no headers.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    if headers.is_empty() { None } else { serde_json::to_string(headers).ok() }
}
