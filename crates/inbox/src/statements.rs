//! The statements, as data: one text for all databases where a fragment is all that differs.

use keylane_sql::{SqlDatabase, Tables};

use crate::templates::Templates;

/// Takes messages: fresh ones, failed ones, and those whose owner's lease has ended.
macro_rules! take_upsert {
    ($after:literal) => {
        concat!(
            "INSERT INTO {inbox}message AS m \
               (consumer_group, token, owner, lease_until, event_id, status, attempts, received_at) \
             SELECT $1, $2, $3, {later:$4}, {each}, 'PROCESSING', 1, {now} {from} \
             ON CONFLICT (consumer_group, event_id) DO UPDATE SET status = 'PROCESSING', \
               attempts = m.attempts + 1, token = excluded.token, owner = excluded.owner, \
               lease_until = excluded.lease_until, finished_at = NULL \
             WHERE m.status = 'FAILED' OR (m.status = 'PROCESSING' AND m.lease_until < {now}) \
             RETURNING event_id",
            $after
        )
    };
}

pub(crate) const TAKE_SQLITE: &str = take_upsert!("");
/// The taking marks its transaction. If the work has ended the transaction, the messages cannot be finished.
pub(crate) const TAKE_POSTGRES: &str = take_upsert!(", set_config('keylane.inbox', m.token, true)");

/// `LAST_INSERT_ID` in the answer tells whether any of the messages was there before.
pub(crate) const TAKE_MYSQL: &str = "\
    INSERT INTO {inbox}message \
      (consumer_group, token, owner, lease_until, event_id, status, attempts, received_at) VALUES {rows} \
    ON DUPLICATE KEY UPDATE \
      attempts = attempts + IF(status = 'FAILED' OR (status = 'PROCESSING' AND lease_until < {now}), \
        LAST_INSERT_ID(1), LAST_INSERT_ID(1) - 1), \
      token = IF(status = 'FAILED' OR (status = 'PROCESSING' AND lease_until < {now}), VALUES(token), token), \
      owner = IF(token = VALUES(token), VALUES(owner), owner), \
      lease_until = IF(token = VALUES(token), VALUES(lease_until), lease_until), \
      finished_at = IF(token = VALUES(token), NULL, finished_at), \
      status = IF(token = VALUES(token), 'PROCESSING', status)";

pub(crate) const TAKE_MYSQL_ROW: &str = "($1, $2, $3, {later:$4}, $5, 'PROCESSING', 1, {now})";

/// Writes the failure of a message whose taking was rolled back.
pub(crate) const WRITE_FAILURE_UPSERT: &str = "\
    INSERT INTO {inbox}message AS m (consumer_group, event_id, token, owner, cost_ms, error, status, attempts, \
      received_at, finished_at) \
    VALUES ($1, $2, $3, $4, $5, $6, 'FAILED', 1, {now}, {now}) \
    ON CONFLICT (consumer_group, event_id) DO UPDATE SET status = 'FAILED', attempts = m.attempts + 1, \
      cost_ms = excluded.cost_ms, error = excluded.error, finished_at = excluded.finished_at, lease_until = NULL \
    WHERE m.status = 'FAILED' OR (m.status = 'PROCESSING' AND m.lease_until < {now})";

pub(crate) const WRITE_FAILURE_MYSQL: &str = "\
    INSERT INTO {inbox}message (consumer_group, event_id, token, owner, cost_ms, error, status, attempts, \
      received_at, finished_at) \
    VALUES ($1, $2, $3, $4, $5, $6, 'FAILED', 1, {now}, {now}) \
    ON DUPLICATE KEY UPDATE \
      token = IF(status = 'FAILED' OR (status = 'PROCESSING' AND lease_until < {now}), VALUES(token), token), \
      attempts = attempts + IF(token = VALUES(token), 1, 0), \
      cost_ms = IF(token = VALUES(token), VALUES(cost_ms), cost_ms), \
      error = IF(token = VALUES(token), VALUES(error), error), \
      finished_at = IF(token = VALUES(token), VALUES(finished_at), finished_at), \
      lease_until = IF(token = VALUES(token), NULL, lease_until), \
      status = IF(token = VALUES(token), 'FAILED', status)";

const STATES: &str = "SELECT event_id, status, token, owner, {int:{left:lease_until}} FROM {inbox}message \
    WHERE consumer_group = $1 AND event_id {in:$2}{latest}";
// `NOT IN` and not `= 'PROCESSING'`: by the index on the status, each update would walk over all messages that had
// the status since the last vacuum. The primary key has the one row.
const FINISH: &str = "UPDATE {inbox}message SET status = 'SUCCESS', cost_ms = $1, finished_at = {now}, \
    lease_until = NULL, error = NULL \
    WHERE consumer_group = $2 AND token = $3 AND status NOT IN ('SUCCESS', 'FAILED') AND event_id {in:$4}";
const FAIL: &str = "UPDATE {inbox}message SET status = 'FAILED', cost_ms = $1, error = $2, finished_at = {now}, \
    lease_until = NULL \
    WHERE consumer_group = $3 AND token = $4 AND event_id = $5 AND status NOT IN ('SUCCESS', 'FAILED')";
const RENEW: &str = "UPDATE {inbox}message SET lease_until = {later:$1} \
    WHERE consumer_group = $2 AND token = $3 AND event_id = $4 AND status NOT IN ('SUCCESS', 'FAILED')";
/// What a purge takes of the finished messages.
const OLD_FINISHED: &str = "finished_at < {ago:$2} ORDER BY finished_at";
// A message in PROCESSING has no `finished_at`. With this condition the index leads to the leases that have ended, and
// the purge neither reads nor locks messages that are being consumed.
const OLD_ABANDONED: &str = "finished_at IS NULL AND lease_until < {ago:$2} ORDER BY lease_until";
const COUNTS: &str =
    "SELECT consumer_group, status, {int:count(*)} FROM {inbox}message GROUP BY consumer_group, status";
const COSTS: &str = "SELECT consumer_group, {int:count(*)}, {int:avg(cost_ms)}, {int:max(cost_ms)} \
    FROM {inbox}message WHERE status = 'SUCCESS' AND finished_at > {ago:$1} GROUP BY consumer_group";

/// The statements of one inbox. What is left in braces changes with each call.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) take: String,
    pub(crate) take_row: String,
    pub(crate) states: String,
    pub(crate) finish: String,
    pub(crate) finish_marked: String,
    pub(crate) fail: String,
    pub(crate) renew: String,
    pub(crate) write_failure: String,
    pub(crate) purge_finished: String,
    pub(crate) purge_abandoned: String,
    pub(crate) counts: String,
    pub(crate) costs: String,
}

impl Statements {
    pub(crate) fn render<DB: SqlDatabase>(tables: &Tables) -> Self {
        let templates = Templates::of::<DB>();
        let (each, from) = templates.each;
        let text = |template: &str| {
            let template = template.replace("{each}", each).replace("{from}", from);
            DB::DIALECT.render(&template.replace("{latest}", templates.latest), tables)
        };
        Self {
            take: text(templates.take),
            take_row: text(TAKE_MYSQL_ROW),
            states: text(STATES),
            finish: text(FINISH),
            finish_marked: text(&format!("{FINISH}{}", templates.marked)),
            fail: text(FAIL),
            renew: text(RENEW),
            write_failure: text(templates.write_failure),
            purge_finished: text(&templates.purge.replace("{old}", OLD_FINISHED)),
            purge_abandoned: text(&templates.purge.replace("{old}", OLD_ABANDONED)),
            counts: text(COUNTS),
            costs: text(COSTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_open_but_lists() {
        let all = Statements::render::<sqlx::MySql>(&Tables::of("inbox"));
        assert!(!all.finish.contains('$') && all.finish.ends_with("event_id IN ({list})"), "{}", all.finish);
        assert!(all.states.ends_with("FOR UPDATE"), "{}", all.states);
        for text in [&all.take_row, &all.fail, &all.renew, &all.write_failure, &all.counts] {
            assert!(!text.contains(['{', '$']), "{text}");
        }
        for text in [&all.purge_finished, &all.purge_abandoned] {
            assert!(!text.contains(['{', '$']), "{text}");
        }
    }
}
