//! The statements, as data: one text for all databases where a fragment is all that differs.

use keylane_sql::{SqlDatabase, Tables, by_family};

/// Claims a key: a new one, and one whose lease or time has ended.
const CLAIM_UPSERT: &str = "\
    INSERT INTO {web}request AS r (scope, request_key, token, fingerprint, trace_id, created_at, expires_at, status) \
    VALUES ($1, $2, $3, $4, $5, {now}, {later:$6}, 'PROCESSING') \
    ON CONFLICT (request_key, scope) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint, \
      trace_id = excluded.trace_id, created_at = excluded.created_at, expires_at = excluded.expires_at, \
      status = 'PROCESSING', result = NULL \
    WHERE r.expires_at < {now}";
/// `expires_at` decides, so it is changed last: each assignment sees those before it.
const CLAIM_MYSQL: &str = "\
    INSERT INTO {web}request (scope, request_key, token, fingerprint, trace_id, created_at, expires_at, status) \
    VALUES ($1, $2, $3, $4, $5, {now}, {later:$6}, 'PROCESSING') \
    ON DUPLICATE KEY UPDATE \
      token = IF(expires_at < {now}, VALUES(token), token), \
      fingerprint = IF(token = VALUES(token), VALUES(fingerprint), fingerprint), \
      trace_id = IF(token = VALUES(token), VALUES(trace_id), trace_id), \
      created_at = IF(token = VALUES(token), VALUES(created_at), created_at), \
      status = IF(token = VALUES(token), 'PROCESSING', status), \
      result = IF(token = VALUES(token), NULL, result), \
      expires_at = IF(token = VALUES(token), VALUES(expires_at), expires_at)";
const RECORD: &str =
    "SELECT token, fingerprint, status, result FROM {web}request WHERE request_key = $1 AND scope = $2";
const FINISH: &str = "UPDATE {web}request SET status = 'SUCCESS', result = $1, expires_at = {later:$2} \
    WHERE request_key = $3 AND scope = $4 AND token = $5 AND status = 'PROCESSING'";
const FREE: &str = "DELETE FROM {web}request \
    WHERE request_key = $1 AND scope = $2 AND token = $3 AND status = 'PROCESSING'";
const PURGE_POSTGRES: &str = "\
    DELETE FROM {web}request r USING (SELECT request_key, scope FROM {web}request WHERE expires_at < {now} \
      ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) old \
    WHERE r.request_key = old.request_key AND r.scope = old.scope";
const PURGE_MYSQL: &str = "DELETE FROM {web}request WHERE expires_at < {now} ORDER BY expires_at LIMIT $1";
const PURGE_SQLITE: &str = "DELETE FROM {web}request WHERE (request_key, scope) IN \
    (SELECT request_key, scope FROM {web}request WHERE expires_at < {now} ORDER BY expires_at LIMIT $1)";

/// The statements on the tables of one store.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) claim: String,
    pub(super) record: String,
    pub(super) finish: String,
    pub(super) free: String,
    pub(super) purge: String,
}

impl Statements {
    pub(super) fn render<DB: SqlDatabase>(tables: &Tables) -> Self {
        let (claim, purge) = by_family::<DB, _>(
            (CLAIM_UPSERT, PURGE_POSTGRES),
            (CLAIM_MYSQL, PURGE_MYSQL),
            (CLAIM_UPSERT, PURGE_SQLITE),
        );
        let text = |template| DB::DIALECT.render(template, tables);
        Self {
            claim: text(claim),
            record: text(RECORD),
            finish: text(FINISH),
            free: text(FREE),
            purge: text(purge),
        }
    }
}

/// The statements that create the tables.
pub(super) fn migration<DB: SqlDatabase>() -> &'static str {
    by_family::<DB, _>(
        include_str!("../../migrations/0001_postgres.sql"),
        include_str!("../../migrations/0001_mysql.sql"),
        include_str!("../../migrations/0001_sqlite.sql"),
    )
}
