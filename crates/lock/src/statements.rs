//! The statements, as data: one text for all databases where a fragment is all that differs.

use crate::tables::Tables;

/// Whether a transaction that has drawn a token can wait for holders.
#[derive(Debug)]
pub(crate) enum Waits {
    Always,
    /// This reads whether it can, as a number. What the holders write meanwhile must not be hidden by a snapshot
    /// that was taken before.
    If(&'static str),
    /// There is one writer: no holder could release.
    Never,
}

/// What differs between the databases.
#[derive(Debug)]
pub struct Dialect {
    /// `$1` becomes `?`; the statements name each parameter once, in order.
    pub(crate) question_marks: bool,
    /// The database's clock.
    pub(crate) now: &'static str,
    /// The same, in microseconds since 1970.
    pub(crate) micros: &'static str,
    /// The time so many milliseconds from now; `@` is the parameter.
    pub(crate) later: &'static str,
    /// The time so many milliseconds ago; `@` is the parameter.
    pub(crate) ago: &'static str,
    /// Milliseconds until a time; `@` is the column.
    pub(crate) left: &'static str,
    /// An expression as a 64-bit integer.
    pub(crate) int: &'static str,
    /// A condition that a column's value is in a list; `@` is the parameter.
    pub(crate) is_in: &'static str,
    /// Draws the next token of a resource.
    pub(crate) draw: &'static str,
    /// Queues a ticket with the token that was drawn before, or that it draws itself.
    pub(crate) queue: &'static str,
    /// Deletes a ticket, and tells those who wait for that.
    pub(crate) leave: &'static str,
    pub(crate) purge: &'static str,
    /// Opens a transaction that writes.
    pub(crate) begin: &'static str,
    /// Whether a transaction can wait for those who came before it.
    pub(crate) waits: Waits,
    pub(crate) migration: &'static str,
    /// Before and after the migration.
    pub(crate) migrate_alone: (&'static str, &'static str),
}

/// Numbers grow with the order of the commits, because the row stays locked until the commit. They never fall
/// behind the clock: a row that was purged, or that a failover has forgotten, begins above what it had.
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

/// The highest two up to a token.
const LOOK: &str = "SELECT token, ticket, client, {int:{left:expires_at}} FROM {lock}ticket \
    WHERE resource = $1 AND token <= $2 ORDER BY token DESC LIMIT 2";
const FIND: &str = "SELECT token FROM {lock}ticket WHERE ticket = $1";
const EVICT: &str = "DELETE FROM {lock}ticket WHERE resource = $1 AND token = $2 AND expires_at < {now}";
const RENEW: &str = "UPDATE {lock}ticket SET expires_at = {later:$1} WHERE ticket {in:$2}";
const LIVING: &str = "SELECT ticket FROM {lock}ticket WHERE ticket {in:$1}";
/// The ticket is a random text that one taking of the resource has; with the token it names no other.
const COUNT_ENTRIES: &str =
    "UPDATE {lock}ticket SET entries = $1 WHERE resource = $2 AND token = $3 AND ticket = $4";
const PLACES: &str = "SELECT token, owner, {int:entries}, {int:{left:expires_at}} FROM {lock}ticket \
    WHERE resource = $1 ORDER BY token LIMIT $2";

/// The statements of one set of locks. What is left in braces changes with each call.
#[doc(hidden)]
#[derive(Debug)]
pub struct Statements {
    pub(crate) draw: String,
    pub(crate) queue: String,
    pub(crate) leave: String,
    pub(crate) look: String,
    pub(crate) find: String,
    pub(crate) evict: String,
    pub(crate) renew: String,
    pub(crate) living: String,
    pub(crate) count_entries: String,
    pub(crate) places: String,
    pub(crate) purge: String,
    pub(crate) version: String,
}

impl Statements {
    pub(crate) fn render(dialect: &Dialect, tables: &Tables) -> Self {
        let text = |template: &str| tables.name(&dialect.expand(template));
        Self {
            draw: text(dialect.draw),
            queue: text(dialect.queue),
            leave: text(dialect.leave),
            look: text(LOOK),
            find: text(FIND),
            evict: text(EVICT),
            renew: text(RENEW),
            living: text(LIVING),
            count_entries: text(COUNT_ENTRIES),
            places: text(PLACES),
            purge: text(dialect.purge),
            version: text("SELECT {int:schema_version} FROM {lock}meta"),
        }
    }
}

impl Dialect {
    /// Fills the fragments, from left to right; tokens that no fragment has stay.
    fn expand(&self, text: &str) -> String {
        let mut text = text.replace("{now}", self.now).replace("{micros}", self.micros);
        let patterns = [
            ("{left:", self.left),
            ("{later:", self.later),
            ("{ago:", self.ago),
            ("{in:", self.is_in),
            ("{int:", self.int),
        ];
        for (open, pattern) in patterns {
            while let Some(at) = text.find(open) {
                let rest = &text[at + open.len()..];
                let Some(end) = rest.find('}') else { break };
                let filled = pattern.replace('@', &rest[..end]);
                text = format!("{}{filled}{}", &text[..at], &rest[end + 1..]);
            }
        }
        if !self.question_marks {
            return text;
        }
        (1..=9).fold(text, |text, number| text.replace(&format!("${number}"), "?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mysql")]
    #[test]
    fn parameters_become_question_marks_and_nothing_is_left_open() {
        let tables = Tables::new(None, "lock_").unwrap();
        let dialect = <sqlx::MySql as crate::database::Backend>::DIALECT;
        let all = Statements::render(dialect, &tables);
        assert!(!all.renew.contains('$') && all.renew.ends_with("ticket IN ({list})"), "{}", all.renew);
        for text in
            [&all.draw, &all.queue, &all.leave, &all.look, &all.evict, &all.count_entries, &all.places]
        {
            assert!(!text.contains(['{', '$']), "{text}");
        }
    }
}
