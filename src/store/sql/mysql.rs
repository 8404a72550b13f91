//! MySQL 8 and later, MariaDB 10.6 and later.

use std::{sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, MySql, MySqlConnection,
    mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow},
};

use super::{
    cancel,
    decode::records_and_changes,
    dialect::{Dialect, Family, Mark},
    driver::{Driver, DriverResult, Kind, Role, Session, Value},
    engine,
    fetches::{records, sqlx_cells, sqlx_fetches},
    files::blame,
    glue::{sqlx_codec, sqlx_database, sqlx_driver},
    insert::{Producer, key_value},
    rows::{kept_parts, sqlx_insert},
    statements::{Statements, fill, filled, here, list},
};
use crate::{
    record::Cancel,
    rules::horizon::Horizon,
    store::{ErrorClass, SchemaError},
};

/// How long MySQL lets a connection of the workers that writes rest, also within a transaction. It is longer than
/// any rest between two statements of the library, and shorter than the time until an instance is declared dead.
const REST_SECONDS: u64 = 30;

sqlx_codec!(MySql, MySqlArguments);
sqlx_cells!(MySqlRow);
sqlx_database!(MySql, MySqlConnection, "MySQL", |_| Ok(()));

impl Driver for MySql {
    const FAMILY: Family = Family::MySql;
    const DIALECT: Dialect = Dialect {
        question_marks: true,
        now: "UTC_TIMESTAMP(6)",
        age: "TIMESTAMPDIFF(MICROSECOND, @, UTC_TIMESTAMP(6))",
        ago: "UTC_TIMESTAMP(6) - INTERVAL @ MICROSECOND",
        later: "UTC_TIMESTAMP(6) + INTERVAL @ MICROSECOND",
        at: "TIMESTAMP'1970-01-01 00:00:00.000000' + INTERVAL @ MICROSECOND",
        unlocked: "FOR UPDATE SKIP LOCKED",
        or_of_ranges: false,
        int: "CAST(@ AS SIGNED)",
        insert_new: ("INSERT IGNORE INTO", ""),
        lock: "FOR UPDATE",
        by: "FORCE INDEX (@)",
        // MySQL takes a hint, and ignores FORCE INDEX in a DELETE of several tables. MariaDB takes the index
        // only as FORCE INDEX, in a comment that begins with M, which only MariaDB reads.
        delete: "DELETE /*+ INDEX({index}@1 @2) */ /*M! {outbox}@1 */ FROM {outbox}@1 /*M! FORCE INDEX (@2) */",
        identity: "concat('made at ', created_at)",
        // A restart keeps the number, because InnoDB loses no acknowledged commit unless its settings allow
        // it.
        server: "CAST(crc32(concat_ws(' ', @@hostname, @@port, @@server_id)) AS SIGNED)",
        begin: "START TRANSACTION",
        mark: Mark {
            set: "SAVEPOINT keylane_work",
            take: Some("RELEASE SAVEPOINT keylane_work"),
            counts: false,
            condition: "",
            read: "",
        },
    };

    fn open_session(pool: &sqlx::MySqlPool, _: Session) -> DriverResult<'static, MySqlConnection> {
        let options = pool.connect_options();
        Box::pin(async move {
            let connected = options.connect().await;
            connected.map_err(|error| blame(error, &*options, &["ssl-ca", "ssl-cert", "ssl-key"]))
        })
    }

    fn set_up(conn: &mut MySqlConnection, session: Session) -> DriverResult<'_, ()> {
        let wait = session.timeout.as_secs().max(1);
        Box::pin(async move {
            // Next-key locks of REPEATABLE READ would make fetches and inserts wait for one another. MariaDB
            // turns a long list of ids into a subquery, which would make it scan the table. If this process
            // is frozen in a transaction, the server ends the transaction, so that others can close its fence
            // rows. MySQL has no such limit but the one for every rest of a connection.
            let rest = match session.role {
                Role::Settle | Role::Claim | Role::Control => {
                    format!("/*!80000 , SESSION wait_timeout = {REST_SECONDS} */")
                }
                Role::Poll | Role::Plain => String::new(),
            };
            let setup = format!(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 SET SESSION innodb_lock_wait_timeout = {wait} {rest} \
                 /*M! , SESSION in_predicate_conversion_threshold = 0, SESSION idle_transaction_timeout = {wait} */"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(setup)).execute(conn).await.map(|_| ())
        })
    }

    fn longest_rest(role: Role) -> Duration {
        match role {
            Role::Settle | Role::Claim | Role::Control => Duration::from_secs(REST_SECONDS / 2),
            Role::Poll | Role::Plain => Duration::MAX,
        }
    }

    fn class_of(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        class_of_number(number_of(error))
    }

    fn code_of(error: &dyn sqlx::error::DatabaseError) -> String {
        number_of(error).to_string()
    }

    fn check_server(conn: &mut MySqlConnection) -> DriverResult<'_, Option<SchemaError>> {
        Box::pin(async move {
            let (version, step): (String, i64) =
                sqlx::query_as("SELECT VERSION(), CAST(@@auto_increment_increment AS SIGNED)")
                    .fetch_one(conn)
                    .await?;
            if let Some(refusal) = engine::refusal(&version) {
                return Ok(Some(refusal));
            }
            if step != 1 {
                return Ok(Some(SchemaError::IdStep { step }));
            }
            let (oldest, needed) = match version.contains("MariaDB") {
                true => ((10, 6), "MariaDB 10.6"),
                false => ((8, 0), "MySQL 8.0"),
            };
            let too_old = release(&version) < oldest;
            Ok(too_old.then_some(SchemaError::Server { server: version, needed }))
        })
    }

    fn lock_key(producer: &Producer, key: &str) -> Option<(String, Vec<Value>)> {
        let sql = producer.sql.lock_keys.as_ref()?;
        Some((lock_text(sql, 1), vec![key_value(Self::FAMILY, key)]))
    }

    sqlx_insert!(MySqlConnection);
    sqlx_driver!(MySql, MySqlConnection);
    sqlx_fetches!(MySqlConnection);
}

/// Reads records by a statement with lists.
async fn read(
    conn: &mut MySqlConnection,
    sql: &str,
    lists: &[(&'static str, String)],
) -> Result<Vec<Arc<crate::record::Record>>, sqlx::Error> {
    records(&sqlx::raw_sql(fill(sql, lists)).fetch_all(conn).await?)
}

fn number_of(error: &dyn sqlx::error::DatabaseError) -> u16 {
    error.try_downcast_ref().map_or(0, MySqlDatabaseError::number)
}

/// Whether a transaction is open that was begun by a statement, or because autocommit is off: without a
/// transaction, a savepoint ends with its statement.
async fn finds_transaction(conn: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let asked = sqlx::raw_sql("SAVEPOINT keylane_asks; RELEASE SAVEPOINT keylane_asks").execute(conn).await;
    match asked {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) => {
            let number = error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number);
            // Error 1305: there is no such savepoint.
            if number == Some(1305) { Ok(false) } else { Err(sqlx::Error::Database(error)) }
        }
        Err(error) => Err(error),
    }
}

/// The major and minor number of a version text such as `10.11.19-MariaDB`.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Locks keys until the end of the user's transaction, so that the ids of a key follow its commits.
/// `GET_LOCK` would outlive the transaction, so the transaction updates the row of each key.
async fn lock_keys(
    conn: &mut MySqlConnection,
    producer: &Producer,
    keys: &[&str],
) -> Result<(), sqlx::Error> {
    let sql = here(&producer.sql.lock_keys)?;
    for keys in kept_parts(keys) {
        let values = keys.iter().map(|key| key_value(MySql::FAMILY, key)).collect();
        bind(sqlx::query(AssertSqlSafe(lock_text(sql, keys.len()))), values).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Finds and locks the records, then deletes those that are not due at that moment.
async fn cancel_records(
    conn: &mut MySqlConnection,
    sql: &Statements,
    what: &Cancel,
) -> Result<u64, sqlx::Error> {
    let (find, values) = cancel::naming::<MySql>(here(&sql.find_cancelled)?, what);
    let found = MySql::query(conn, find, values, &[Kind::Int, Kind::Text, Kind::Text]).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let ids = [("{ids}", list(found.iter().map(|row| row.int(0))))];
    MySql::query(conn, fill(&sql.lock_records, &ids), Vec::new(), &[Kind::Int]).await?;
    let cancelled = MySql::execute(conn, fill(&sql.cancel, &ids), Vec::new()).await?;
    if cancelled > 0 {
        cancel::free_dedup_keys::<MySql>(conn, sql, &found, 1).await?;
    }
    Ok(cancelled)
}

fn lock_text(sql: &str, keys: usize) -> String {
    filled(sql, &[("{rows}", vec!["(?, 1)"; keys].join(", "))])
}

/// What to do about an error number. The function is total: a number that is not listed is a refusal, because
/// a trigger of the user may raise any number. It sorts numbers, because the SQLSTATEs of the engines of this
/// family differ.
pub fn class_of_number(number: u16) -> ErrorClass {
    match number {
        1213 | 1205 | 1020 | 3024 | 1969 | 3572 | 6235 | 9007 => ErrorClass::Retry,
        1290 | 1792 | 1836 | 1047 => ErrorClass::WrongNode,
        1040 | 1041 | 1021 | 1114 | 1203 | 1226 => ErrorClass::Resource,
        1153 | 1406 | 1366 | 1264 | 1265 | 1292 | 1048 | 1364 | 3140 | 3819 | 4025 => ErrorClass::Record,
        1062 | 1586 => ErrorClass::Duplicate,
        // The numbers from 1130 on refuse a user or the way of its login.
        1044 | 1045 | 1049 | 1050 | 1054 | 1064 | 1142 | 1143 | 1146 | 1227 | 1305 | 1370 | 1130 | 1251 | 1524
        | 1698 | 1820 | 1862 | 3118 | 4151 => ErrorClass::Setup,
        // Shutdowns, kills, broken packets and all errors of the client about a connection.
        0..=999
        | 1042
        | 1043
        | 1053
        | 1077..=1081
        | 1152
        | 1154..=1161
        | 1180
        | 1184
        | 1189
        | 1190
        | 1317
        | 1927
        | 2000..=2999
        | 3169
        | 4031
        // ProxySQL cannot reach a server.
        | 9001 => ErrorClass::Reconnect,
        _ => ErrorClass::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_class() {
        use ErrorClass::{Duplicate, Reconnect, Record, Refused, Resource, Retry, Setup, WrongNode};
        let table: [(ErrorClass, &[u16]); 8] = [
            (Retry, &[1213, 1205, 1020, 3024, 1969, 3572]),
            (Reconnect, &[2002, 2006, 2013, 1053, 1077, 1927, 4031, 9001]),
            (WrongNode, &[1290, 1792, 1836, 1047]),
            (Resource, &[1040, 1041, 1021, 1114, 1203]),
            (Record, &[1153, 1406, 1366, 1264, 3819, 4025]),
            (Duplicate, &[1062]),
            (Refused, &[1644, 1451, 1452, 30_001, u16::MAX]),
            (Setup, &[1146, 1054, 1142, 1045, 1049, 1064, 1698, 3118]),
        ];
        for (class, numbers) in table {
            for number in numbers {
                assert_eq!(class_of_number(*number), class, "{number}");
            }
        }
    }
}
