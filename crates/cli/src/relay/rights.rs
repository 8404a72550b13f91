//! Whether a user of the database may do what workers do, found out by statements that change nothing.

use keylane::Config;

use super::database::AnyOutbox;

/// The tables that workers read and write, each with a column.
const TABLES: &[(&str, &str)] = &[
    ("record", "handler"),
    ("archive", "handler"),
    ("lane", "handler"),
    ("instance", "instance_id"),
    ("start", "record_id"),
    ("fence", "instance_id"),
    ("partition", "partition_no"),
    ("handler", "handler"),
    ("dedup", "dedup_key"),
];

/// The first right that is missing, with the server's words.
pub(crate) async fn missing(outbox: &dyn AnyOutbox, config: &Config) -> Option<String> {
    let schema = config.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
    let prefix = format!("{schema}{}", config.table_prefix);
    for (table, column) in TABLES {
        let table = format!("{prefix}{table}");
        let statements = [
            format!("SELECT {column} FROM {table} WHERE 1 = 0"),
            format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
            format!("UPDATE {table} SET {column} = {column} WHERE 1 = 0"),
            format!("DELETE FROM {table} WHERE 1 = 0"),
        ];
        for statement in statements {
            let verb: String = statement.chars().take_while(|c| *c != ' ').collect();
            if let Err(error) = outbox.try_statement(statement).await {
                return Some(format!("{verb} on {table}: {error}"));
            }
        }
    }
    None
}

/// Handlers beside those of the relay that are listed in its outbox.
pub(crate) async fn other_handlers(outbox: &dyn AnyOutbox, config: &Config, own: &[String]) -> Vec<String> {
    let schema = config.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
    let listed = format!("SELECT DISTINCT handler FROM {schema}{}handler", config.table_prefix);
    let mut listed = outbox.texts(listed).await.unwrap_or_default();
    listed.retain(|handler| !own.contains(handler));
    listed.sort_unstable();
    listed
}
