//! PostgreSQL 15 and later.

use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, postgres::PgArguments};

use super::{
    arrays::bind_columns,
    cancel,
    decode::{RecordRow, record, records_and_changes},
    dialect::{Dialect, Family, Mark},
    driver::{AFTER_RECORD, Driver, DriverResult, Kind, Session, Value},
    engine,
    glue::{sqlx_codec, sqlx_database, sqlx_driver},
    insert::{Insert, Producer, extra_values, fill_extras},
    notifier::PgNotifier,
    numbers, sessions,
    statements::{Statements, fill, filled, here, of_handlers, safe},
};
use crate::{
    naming,
    partition::{Partition, PartitionSet},
    record::{Cancel, NewRecord, Record, RecordId},
    rules::{
        horizon::{Bystanders, Head, Horizon, Server},
        witnesses::{Snapshot, Witness},
    },
    store::{ErrorClass, FenceRow, IdScan, Notifier, Pick, SchemaError, StoreSettings, Tables},
};

/// The starts of PgBouncer's texts that waiting does not fix. PgBouncer has one SQLSTATE for all its errors.
const REFUSED_BY_POOLERS: [&str; 3] = ["unsupported startup parameter", "no such database", "no such user"];

/// The most ids that the short statement of a scan skips, because it searches them for each row.
const SKIPPED_IN_PLAIN: usize = 8;

sqlx_codec!(Postgres, PgArguments);
sqlx_database!(Postgres, PgConnection, "PostgreSQL", |_| Ok(()));

impl Driver for Postgres {
    const FAMILY: Family = Family::Postgres;
    const DIALECT: Dialect = Dialect {
        question_marks: false,
        now: "clock_timestamp()",
        age: "(extract(epoch FROM clock_timestamp() - @) * 1000000)::int8",
        ago: "clock_timestamp() - @ * interval '1 microsecond'",
        later: "clock_timestamp() + @::int8 * interval '1 microsecond'",
        at: "timestamptz 'epoch' + @::int8 * interval '1 microsecond'",
        unlocked: "FOR KEY SHARE SKIP LOCKED",
        or_of_ranges: false,
        int: "(@)::int8",
        insert_new: ("INSERT INTO", "ON CONFLICT DO NOTHING"),
        lock: "FOR UPDATE",
        by: "",
        delete: "DELETE FROM {outbox}@1",
        // A copy of a database has the same row on another server.
        identity: "format('database %s of server %s, made at %s', current_database(), \
                   (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM created_at))",
        // The time since which this server counts statistics, before 1970 while it is a standby. A clean
        // restart keeps the time. A crash, after which the last commits may be lost, changes it, and each
        // copy of a server has another one.
        server: "(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::int8 \
                 * (1 - 2 * pg_is_in_recovery()::int)",
        begin: "BEGIN ISOLATION LEVEL READ COMMITTED",
        mark: Mark {
            set: "SET LOCAL keylane.work = 'open'",
            take: None,
            counts: false,
            condition: "AND current_setting('keylane.work', true) = 'open'",
            read: "SELECT (current_setting('keylane.work', true) IS NOT DISTINCT FROM 'open')::int::int8",
        },
    };

    fn open_session(pool: &sqlx::PgPool, _: Session) -> DriverResult<'static, PgConnection> {
        let options = sessions::options(pool);
        Box::pin(async move { sessions::open(&options).await })
    }

    fn set_up(conn: &mut PgConnection, session: Session) -> DriverResult<'_, ()> {
        Box::pin(sessions::set_up(conn, session))
    }

    fn may_name(pool: &sqlx::PgPool) -> bool {
        sessions::caches_statements(pool)
    }

    fn find_pooler(pool: &sqlx::PgPool) -> DriverResult<'_, Option<SchemaError>> {
        Box::pin(sessions::find_pooler(pool))
    }

    fn notifier(pool: &sqlx::PgPool, settings: &StoreSettings) -> Option<Arc<dyn Notifier>> {
        Some(PgNotifier::shared(pool, settings))
    }

    fn class_of(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        let refused = |text: &&str| error.message().starts_with(*text);
        match &*error.code().unwrap_or_default() {
            "08P01" if REFUSED_BY_POOLERS.iter().any(refused) => ErrorClass::Setup,
            state => class_of_state(state),
        }
    }

    fn check_server(conn: &mut PgConnection) -> DriverResult<'_, Option<SchemaError>> {
        Box::pin(async move {
            let (name, version, read_only): (String, String, bool) = sqlx::query_as(
                "SELECT version(), current_setting('server_version_num'), \
                 pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'",
            )
            .fetch_one(conn)
            .await?;
            if let Some(refusal) = engine::refusal(&name) {
                return Ok(Some(refusal));
            }
            if version.parse::<u32>().unwrap_or(0) < 150_000 {
                let server = format!("PostgreSQL {version}");
                return Ok(Some(SchemaError::Server { server, needed: "PostgreSQL 15" }));
            }
            Ok(read_only.then_some(SchemaError::ReadOnly))
        })
    }

    fn fetch_by_partition<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Arc<str>,
        partitions: &'c [Partition],
        pick: Pick<'c>,
    ) -> DriverResult<'c, Vec<Arc<Record>>> {
        let numbers: Vec<i16> = partitions.iter().map(|partition| i16::from(partition.number())).collect();
        let limit = i64::try_from(pick.limit).unwrap_or(i64::MAX);
        Box::pin(async move {
            let query = sqlx::query(of(sql, pick));
            let mut rows = query.bind(numbers).bind(pick.skip).bind(limit).bind(limit).fetch(conn);
            let mut records = Vec::new();
            // Rows are decoded one by one, while the server still searches for more.
            while let Some(row) = rows.try_next().await? {
                records.push(record(&row, records.last())?);
            }
            Ok(records)
        })
    }

    fn fetch_due<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Arc<str>,
        partitions: PartitionSet,
        pick: Pick<'c>,
    ) -> DriverResult<'c, (Vec<Arc<Record>>, i64)> {
        let numbers: Vec<i16> = partitions.iter().map(|partition| i16::from(partition.number())).collect();
        let limit = i64::try_from(pick.limit).unwrap_or(i64::MAX);
        Box::pin(async move {
            let query = sqlx::query(of(sql, pick)).bind(numbers).bind(pick.skip);
            records_and_changes(&query.bind(limit).bind(limit).fetch_all(conn).await?)
        })
    }

    fn complete_at_once<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Arc<str>,
        fence: FenceRow,
        ids: &'c [RecordId],
        last: Option<&'c [RecordId]>,
        failures: u32,
    ) -> DriverResult<'c, (i64, usize, (i64, Server))> {
        Box::pin(async move {
            let query = sqlx::query_as(AssertSqlSafe(Arc::clone(sql)))
                .bind(fence.instance.to_string())
                .bind(i64::from(fence.slot))
                .bind(fence.counter)
                .bind(fence.server.0)
                .bind(ids)
                .bind(i32::try_from(failures).unwrap_or(i32::MAX));
            let query = last.into_iter().fold(query, |query, last| query.bind(last));
            let (moved, applied, number, server): (i64, i64, i64, i64) = query.fetch_one(conn).await?;
            Ok((moved, usize::try_from(applied).unwrap_or(0), (number, Server(server))))
        })
    }

    fn scan_by_id<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Statements,
        scan: IdScan<'c>,
    ) -> DriverResult<'c, (Vec<Arc<Record>>, Horizon)> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Box::pin(async move {
            let (skip, bits) = (scan.skip_above(), scan.partitions.to_bytes().to_vec());
            let (limit, list) = (count(scan.pick.limit), count(scan.list));
            let end = scan.from.saturating_add(scan.reach);
            let is_plain = skip.len() <= SKIPPED_IN_PLAIN && scan.open.is_empty() && scan.list == 0;
            let query = match (&sql.scan_others, scan.within.split_last(), &sql.scan_plain) {
                (Some(others), Some(((first, last), ranges)), _) => {
                    let (firsts, lasts): (Vec<i64>, Vec<i64>) = ranges.iter().copied().unzip();
                    let query = sqlx::query(of(others, scan.pick)).bind(firsts).bind(lasts);
                    let query = query.bind(bits).bind(skip).bind(scan.open).bind(limit).bind(list);
                    query.bind(*first).bind(last.saturating_add(1))
                }
                (_, _, Some(plain)) if is_plain => {
                    let query = sqlx::query(of(plain, scan.pick)).bind(scan.from).bind(end);
                    query.bind(bits).bind(limit).bind(skip)
                }
                _ => {
                    let query = sqlx::query(of(&sql.scan_by_id, scan.pick)).bind(scan.from).bind(end);
                    query.bind(bits).bind(skip).bind(scan.open).bind(limit).bind(list)
                }
            };
            let mut rows = query.fetch(conn);
            let mut horizon = Horizon { snapshot: Some(Snapshot::default()), ..Horizon::default() };
            let mut records = Vec::with_capacity(scan.pick.limit);
            // Rows are decoded one by one, while the server still searches for more.
            while let Some(row) = rows.try_next().await? {
                match row.int(AFTER_RECORD)? {
                    Some(last_id) => {
                        let snapshot = Some(numbers::snapshot(
                            &get::<String>(&row, AFTER_RECORD + 1)?.unwrap_or_default(),
                        )?);
                        let server = Server(get::<i64>(&row, AFTER_RECORD + 2)?.unwrap_or(0));
                        let visible = get::<Vec<i64>>(&row, AFTER_RECORD + 3)?.unwrap_or_default();
                        horizon = Horizon { server, last_id, snapshot, visible, ahead: Vec::new() };
                    }
                    None => records.push(record(&row, records.last())?),
                }
            }
            records.truncate(scan.pick.limit);
            Ok((records, horizon))
        })
    }

    fn draw_number<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Statements,
    ) -> DriverResult<'c, Option<(Witness, Server)>> {
        Box::pin(numbers::draw_number(conn, sql))
    }

    fn find_bystanders<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Statements,
        given: &'c [i64],
    ) -> DriverResult<'c, Option<Bystanders>> {
        Box::pin(numbers::find_bystanders(conn, sql, given))
    }

    fn find_head<'c>(
        conn: &'c mut PgConnection,
        sql: &'c Statements,
        partitions: PartitionSet,
        skip: &'c [RecordId],
    ) -> DriverResult<'c, Head> {
        let numbers: Vec<i16> = partitions.iter().map(|partition| i16::from(partition.number())).collect();
        Box::pin(async move {
            let drawn = numbers::draw_number(conn, sql).await?;
            let (first, seen, server): (Option<i64>, String, i64) =
                sqlx::query_as(safe(&sql.find_head)).bind(numbers).bind(skip).fetch_one(conn).await?;
            // Numbers that another server has drawn do not count.
            let of_it = drawn.filter(|(_, of)| of.0 == server);
            let last_id = of_it.map_or(0, |(witness, _)| witness.last_id);
            let number = Some(of_it.map_or(0, |(witness, _)| witness.number));
            let horizon = Horizon {
                server: Server(server),
                last_id,
                snapshot: Some(numbers::snapshot(&seen)?),
                ..Horizon::default()
            };
            Ok(Head { first, horizon, number })
        })
    }

    fn insert_rows<'c>(conn: &'c mut PgConnection, insert: Insert<'c>) -> DriverResult<'c, ()> {
        Box::pin(async move {
            match insert.rows {
                [row] => insert_one(conn, &insert, row).await,
                _ => insert_many(conn, &insert).await,
            }
        })
    }

    fn lock_key(producer: &Producer, key: &str) -> Option<(String, Vec<Value>)> {
        let hash = i64::from(lock_hash(&producer.tables, key));
        let sql = producer.sql.lock_hashes.as_ref()?;
        let text = filled(sql, &[("{hashes}", "ARRAY[$2::int8::int4]".to_owned())]);
        Some((text, vec![i64::from(LOCK_NAMESPACE).into(), hash.into()]))
    }

    sqlx_driver!(Postgres, PgConnection);
}

async fn insert_one(
    conn: &mut PgConnection,
    insert: &Insert<'_>,
    row: &NewRecord,
) -> Result<(), sqlx::Error> {
    let values = insert.values(Postgres::FAMILY, row).collect();
    let sql = safe(&insert.text(&Postgres::DIALECT, 1));
    bind(sqlx::query(sql), values).execute(conn).await.map(|_| ())
}

async fn insert_many(conn: &mut PgConnection, insert: &Insert<'_>) -> Result<(), sqlx::Error> {
    let extra = [("{extra}", extra_values(&Postgres::DIALECT, &insert.extras, 0))];
    let sql = fill_extras(here(&insert.producer.sql.insert_many)?, &insert.extras, &extra);
    let mut query = bind_columns(sqlx::query(safe(&sql)).persistent(naming::are_given()), insert.rows);
    for extra in &insert.extras {
        query = bind_one(query, extra.value.clone());
    }
    query.execute(conn).await.map(|_| ())
}

/// Whether a transaction is open that was begun by a statement: a savepoint needs one.
async fn finds_transaction(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let asked = sqlx::raw_sql("SAVEPOINT keylane_asks; RELEASE SAVEPOINT keylane_asks").execute(conn).await;
    match asked {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("25P01") => Ok(false),
        Err(error) => Err(error),
    }
}

/// The namespace of the advisory locks of the strict order level: `keyl` in ASCII.
const LOCK_NAMESPACE: i32 = 0x6b65_796c;

/// Locks keys until the end of the user's transaction, so that the ids of a key follow its commits.
async fn lock_keys(conn: &mut PgConnection, producer: &Producer, keys: &[&str]) -> Result<(), sqlx::Error> {
    let mut hashes: Vec<i32> = keys.iter().map(|key| lock_hash(&producer.tables, key)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let sql = fill(here(&producer.sql.lock_hashes)?, &[("{hashes}", "$2::int4[]".to_owned())]);
    sqlx::query(sql)
        .persistent(naming::are_given())
        .bind(i64::from(LOCK_NAMESPACE))
        .bind(hashes)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Fills the condition on the handlers into a fetch.
fn of(sql: &Arc<str>, pick: Pick<'_>) -> AssertSqlSafe<Arc<str>> {
    fill(sql, &[("{handlers}", of_handlers(pick.handlers))])
}

/// Cancels, frees the dedup keys and counts in one statement.
async fn cancel_records(
    conn: &mut PgConnection,
    sql: &Statements,
    what: &Cancel,
) -> Result<u64, sqlx::Error> {
    let (sql, values) = cancel::naming::<Postgres>(&sql.cancel, what);
    let rows = Postgres::query(conn, sql, values, &[Kind::Int]).await?;
    Ok(rows.first().map_or(0, |row| row.int(0).unsigned_abs()))
}

/// The advisory lock of a key: a hash of the key and the names of the tables.
fn lock_hash(tables: &Tables, key: &str) -> i32 {
    let hash = xxhash_rust::xxh3::xxh3_64(format!("{}\0{key}", tables.qualifier()).as_bytes());
    (hash & u64::from(u32::MAX)) as u32 as i32
}

/// What to do about a SQLSTATE. The function is total: an unknown class breaks the connection, which is
/// always safe.
pub fn class_of_state(state: &str) -> ErrorClass {
    match state {
        "40001" | "40P01" | "55P03" | "57014" => ErrorClass::Retry,
        "25006" => ErrorClass::WrongNode,
        // A statement has failed before in this transaction: the handler has ignored the error.
        "25P02" => ErrorClass::Record,
        "23505" => ErrorClass::Duplicate,
        "57P01" | "57P02" | "57P03" | "57P05" | "26000" | "0A000" => ErrorClass::Reconnect,
        _ => match state.get(..2) {
            Some("53") => ErrorClass::Resource,
            Some("22" | "23" | "54") => ErrorClass::Record,
            Some("42" | "3F" | "3D" | "28") => ErrorClass::Setup,
            Some("08" | "0A" | "0B" | "25" | "26" | "57" | "58" | "F0" | "XX") | None => {
                ErrorClass::Reconnect
            }
            // A trigger or a function of the user may raise any state: P0001, or a custom one.
            Some(_) => ErrorClass::Refused,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_class() {
        use ErrorClass::{Duplicate, Reconnect, Record, Refused, Resource, Retry, Setup, WrongNode};
        let table = [
            (Retry, "40001 40P01 55P03 57014"),
            (Reconnect, "08000 08003 08006 57P01 57P02 57P03 57P05 25P03 26000 0A000 XX000"),
            (WrongNode, "25006"),
            (Resource, "53100 53200 53300 53400"),
            (Record, "22001 22021 22P02 22P05 23502 23514 54000 25P02"),
            (Duplicate, "23505"),
            (Refused, "P0001 09000 2F003 38001 ABC01 ZZZZZ 99999"),
            (Setup, "42P01 42703 42501 3F000 28P01 3D000"),
        ];
        for (class, states) in table {
            for state in states.split(' ') {
                assert_eq!(class_of_state(state), class, "{state}");
            }
        }
        // A text that is no SQLSTATE breaks the connection.
        for state in ["", "4"] {
            assert_eq!(class_of_state(state), Reconnect, "{state:?}");
        }
    }
}
