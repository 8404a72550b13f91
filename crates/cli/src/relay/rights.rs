//! Checks the tables of a relay: whether its user has the rights of workers, by statements that change nothing, and
//! which handlers are listed.

use keylane::Config;
use keylane_message::Route;

use super::database::AnyOutbox;

/// The tables that workers read and write, each with a column.
const TABLES: &[(&str, &str)] = &[
    ("record", "handler"),
    ("archive", "handler"),
    ("dead_letter", "handler"),
    ("lane", "handler"),
    ("instance", "instance_id"),
    ("start", "record_id"),
    ("fence", "instance_id"),
    ("partition", "partition_no"),
    ("handler", "handler"),
    ("dedup", "dedup_key"),
];

/// The first missing right, with the text of the server.
pub(crate) async fn missing(outbox: &dyn AnyOutbox, config: &Config) -> Option<String> {
    for (table, column) in TABLES {
        let table = name(config, table);
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

/// Handlers that are listed in the relay's outbox and are not of the relay.
pub(crate) async fn other_handlers(outbox: &dyn AnyOutbox, config: &Config, own: &[String]) -> Vec<String> {
    let listed = format!("SELECT DISTINCT handler FROM {} ORDER BY handler", name(config, "handler"));
    let mut listed = outbox.texts(listed).await.unwrap_or_default();
    listed.retain(|handler| !own.contains(handler));
    listed
}

/// Types that are listed for a handler of the relay, although none of its routes accepts them any more.
pub(crate) async fn left_over(
    outbox: &dyn AnyOutbox,
    config: &Config,
    handler: &str,
    routes: &[Route],
) -> Vec<String> {
    // The id needs no quoting, because its letters were checked when the outbox was built.
    let table = name(config, "handler");
    let listed = format!("SELECT record_type FROM {table} WHERE handler = '{handler}' ORDER BY record_type");
    let mut listed = outbox.texts(listed).await.unwrap_or_default();
    let takes_all = routes.iter().any(|route| route.record_types().patterns().is_none());
    let is_taken = |listed: &str| match listed {
        "*" => takes_all,
        listed => routes.iter().any(|route| route.takes(listed)),
    };
    listed.retain(|listed| !is_taken(listed));
    listed
}

fn name(config: &Config, table: &str) -> String {
    let schema = config.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
    format!("{schema}{}{table}", config.table_prefix)
}
