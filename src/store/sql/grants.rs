//! The rights of each kind of process in the database, as statements for a DBA.

use super::{dialect::Family, statements::filled};
use crate::store::{Rights, Tables};

const NONE: &str = "-- SQLite has no users: whoever may write the file may do everything.\n";

/// The statements that give these rights. `to` is not quoted.
pub(super) fn script(family: Family, rights: Rights, tables: &Tables, to: &str) -> String {
    let text = match (family, rights) {
        (Family::Postgres, Rights::Producer) => include_str!("grants/postgres/producer.sql"),
        (Family::Postgres, Rights::Worker) => include_str!("grants/postgres/worker.sql"),
        (Family::Postgres, Rights::Admin) => include_str!("grants/postgres/admin.sql"),
        (Family::MySql, Rights::Producer) => include_str!("grants/mysql/producer.sql"),
        (Family::MySql, Rights::Worker) => include_str!("grants/mysql/worker.sql"),
        (Family::MySql, Rights::Admin) => include_str!("grants/mysql/admin.sql"),
        (Family::Sqlite, _) => NONE,
    };
    // Without a schema of its own, the outbox is in a schema that every user may use.
    let lines = text.lines().filter(|line| tables.schema().is_some() || !line.contains("{schema}"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let schema = tables.schema().unwrap_or_default().to_owned();
    filled(&text, &[("{schema}", schema), ("{outbox}", tables.qualifier()), ("{to}", to.to_owned())])
}
