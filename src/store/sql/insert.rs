//! The parameters and columns of an insert.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{
    dialect::{Dialect, Family},
    statements::filled,
};
use crate::{
    partition::Partition,
    record::{Headers, NewRecord},
    statement::Value,
    store::Tables,
};

/// Records of one insert. All have the same headers, extra columns and extra values.
pub(crate) struct Insert<'a> {
    pub(crate) tables: &'a Tables,
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
    /// Fills a template with the extra columns of these records.
    pub(crate) fn fill(
        &self,
        dialect: &Dialect,
        template: &str,
        values: &[(&str, String)],
    ) -> AssertSqlSafe<String> {
        let columns: String = self.extras.iter().map(|extra| extra.columns).collect();
        let sql = dialect.render(template, self.tables).replace("{extra_columns}", &columns);
        AssertSqlSafe(filled(&sql, values))
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

    /// The expressions of the extra values, each of its parameter.
    pub(crate) fn extra_values(&self, parameter: impl Fn(usize) -> String) -> String {
        let values = self.extras.iter().zip(EVERY + 1..);
        values.map(|(extra, number)| extra.expression.replace('@', &parameter(number))).collect()
    }
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
