//! The statements, as data: one text for all databases where a fragment is all that differs.

use keylane_sql::{SqlDatabase, Tables};

use crate::templates::Templates;

/// Tokens grow in the order of the commits, because the row stays locked until the commit. Tokens never fall behind
/// the clock: if the row of a resource was purged, or lost in a failover, its next token is above the old ones.
macro_rules! draw_upsert {
    ($greatest:literal) => {
        concat!(
            "INSERT INTO {lock}resource AS r (resource, last_token, used_at) VALUES ($1, {micros}, {now}) \
             ON CONFLICT (resource) DO UPDATE SET last_token = ",
            $greatest,
            "(r.last_token + 1, {micros}), used_at = {now} RETURNING last_token"
        )
    };
}

pub(crate) const DRAW_POSTGRES: &str = draw_upsert!("greatest");
pub(crate) const DRAW_SQLITE: &str = draw_upsert!("max");

/// `LAST_INSERT_ID` brings the token back in the answer.
pub(crate) const DRAW_MYSQL: &str = "\
    INSERT INTO {lock}resource (resource, last_token, used_at) VALUES ($1, LAST_INSERT_ID({micros}), {now}) \
    ON DUPLICATE KEY UPDATE last_token = LAST_INSERT_ID(GREATEST(last_token + 1, {micros})), used_at = {now}";

/// Draws and queues in one statement.
pub(crate) const QUEUE_POSTGRES: &str = concat!(
    "WITH drawn AS (",
    draw_upsert!("greatest"),
    ") INSERT INTO {lock}ticket (resource, token, ticket, client, owner, entries, queued_at, expires_at) \
     SELECT $1, last_token, $2, $3, $4, 1, {now}, {later:$5} FROM drawn RETURNING token"
);

pub(crate) const QUEUE: &str = "\
    INSERT INTO {lock}ticket (resource, token, ticket, client, owner, entries, queued_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, 1, {now}, {later:$6})";

/// The notification comes with the commit.
pub(crate) const LEAVE_POSTGRES: &str = "\
    WITH gone AS (DELETE FROM {lock}ticket WHERE ticket = $1 RETURNING ticket) \
    SELECT pg_notify('keylane_lock', ticket) FROM gone";

pub(crate) const LEAVE: &str = "DELETE FROM {lock}ticket WHERE ticket = $1";

/// The two highest tickets up to a token.
const READ_QUEUE: &str = "SELECT token, ticket, client, {int:{left:expires_at}} FROM {lock}ticket \
    WHERE resource = $1 AND token <= $2 ORDER BY token DESC LIMIT 2";
const FIND: &str = "SELECT token FROM {lock}ticket WHERE ticket = $1";
const EVICT: &str = "DELETE FROM {lock}ticket WHERE resource = $1 AND token = $2 AND expires_at < {now}";
const RENEW: &str = "UPDATE {lock}ticket SET expires_at = {later:$1} WHERE ticket {in:$2}";
const LIVING: &str = "SELECT ticket FROM {lock}ticket WHERE ticket {in:$1}";
/// The ticket is a random text, which no other holder or waiter has.
const COUNT_ENTRIES: &str =
    "UPDATE {lock}ticket SET entries = $1 WHERE resource = $2 AND token = $3 AND ticket = $4";
const PLACES: &str = "SELECT token, owner, {int:entries}, {int:{left:expires_at}} FROM {lock}ticket \
    WHERE resource = $1 ORDER BY token LIMIT $2";

/// The statements of one set of locks. What is left in braces changes with each call.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) draw: String,
    pub(crate) queue: String,
    pub(crate) leave: String,
    pub(crate) read_queue: String,
    pub(crate) find: String,
    pub(crate) evict: String,
    pub(crate) renew: String,
    pub(crate) living: String,
    pub(crate) count_entries: String,
    pub(crate) places: String,
    pub(crate) purge: String,
}

impl Statements {
    pub(crate) fn render<DB: SqlDatabase>(tables: &Tables) -> Self {
        let templates = Templates::of::<DB>();
        let text = |template: &str| DB::DIALECT.render(template, tables);
        Self {
            draw: text(templates.draw),
            queue: text(templates.queue),
            leave: text(templates.leave),
            read_queue: text(READ_QUEUE),
            find: text(FIND),
            evict: text(EVICT),
            renew: text(RENEW),
            living: text(LIVING),
            count_entries: text(COUNT_ENTRIES),
            places: text(PLACES),
            purge: text(templates.purge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_open_but_lists() {
        let all = Statements::render::<sqlx::MySql>(&Tables::of("lock"));
        assert!(!all.renew.contains('$') && all.renew.ends_with("ticket IN ({list})"), "{}", all.renew);
        for text in
            [&all.draw, &all.queue, &all.leave, &all.read_queue, &all.evict, &all.count_entries, &all.places]
        {
            assert!(!text.contains(['{', '$']), "{text}");
        }
    }
}
