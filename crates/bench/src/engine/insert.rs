//! The inserts of a service, as an expert writes them by hand.

use std::future::Future;

use keylane::{
    OutboxEvent,
    database::Database,
    partition::Partition,
    sqlx::{self, AssertSqlSafe, MySql, MySqlConnection, PgConnection, Postgres, Sqlite, SqliteConnection},
};
use uuid::Uuid;

use super::super::{Result, handler::HANDLER, tally::Event};

const CONTENT_TYPE: &str = "application/json";
const HEADERS: Option<String> = None;

/// A record for the table of the library, with all columns that the library fills.
pub(crate) struct Row {
    event_id: Uuid,
    partition: i16,
    key: String,
    payload: Vec<u8>,
}

impl Row {
    /// The row of an event: encoded, with an identity and the partition of its key.
    pub(crate) fn of(event: &Event) -> Result<Self> {
        let key = event.key().into_owned();
        let partition = i16::from(Partition::of(&key).number());
        Ok(Self { event_id: Uuid::now_v7(), partition, key, payload: serde_json::to_vec(event)? })
    }
}

/// A database that a service writes to.
pub(crate) trait Insert: Database {
    /// Creates the table of the service's own rows.
    const CREATE_BUSINESS: &'static str;

    /// Writes a row of the service's own.
    fn insert_business(
        conn: &mut Self::Connection,
        key: &str,
        body: &str,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Writes one record.
    fn insert_record(conn: &mut Self::Connection, row: &Row) -> impl Future<Output = Result<()>> + Send;

    /// Writes many records in one statement.
    fn insert_records(conn: &mut Self::Connection, rows: &[Row]) -> impl Future<Output = Result<()>> + Send;
}

macro_rules! record_head {
    () => {
        "INSERT INTO keylane_bench_record \
         (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers) "
    };
}

/// The single inserts of each driver. The code differs only in the parameters.
macro_rules! singly {
    ($connection:ty, $business:literal, $record:literal, $key:ident) => {
        async fn insert_business(conn: &mut $connection, key: &str, body: &str) -> Result<()> {
            const BUSINESS: &str =
                concat!("INSERT INTO keylane_bench_business (business_key, body) VALUES ", $business);
            sqlx::query(BUSINESS).bind(key).bind(body).execute(conn).await?;
            Ok(())
        }

        async fn insert_record(conn: &mut $connection, row: &Row) -> Result<()> {
            const RECORD: &str = concat!(record_head!(), "VALUES ", $record);
            sqlx::query(RECORD)
                .bind(row.event_id)
                .bind(row.partition)
                .bind(row.key.$key())
                .bind(HANDLER)
                .bind(Event::RECORD_TYPE)
                .bind(CONTENT_TYPE)
                .bind(row.payload.as_slice())
                .bind(HEADERS)
                .execute(conn)
                .await?;
            Ok(())
        }
    };
}

/// Many rows as groups of values.
macro_rules! by_values {
    ($connection:ty, $key:ident) => {
        async fn insert_records(conn: &mut $connection, rows: &[Row]) -> Result<()> {
            let values = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; rows.len()].join(", ");
            let mut query = sqlx::query(AssertSqlSafe(format!(concat!(record_head!(), "VALUES {}"), values)));
            for row in rows {
                query = query
                    .bind(row.event_id)
                    .bind(row.partition)
                    .bind(row.key.$key())
                    .bind(HANDLER)
                    .bind(Event::RECORD_TYPE)
                    .bind(CONTENT_TYPE)
                    .bind(row.payload.as_slice())
                    .bind(HEADERS);
            }
            query.execute(conn).await?;
            Ok(())
        }
    };
}

impl Insert for Postgres {
    const CREATE_BUSINESS: &'static str = "CREATE TABLE keylane_bench_business (\
         id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, business_key text NOT NULL, body text NOT NULL)";

    singly!(PgConnection, "($1, $2)", "($1, $2, $3, $4, $5, $6, $7, $8)", as_str);

    /// A value that all rows share is one parameter, not an array.
    async fn insert_records(conn: &mut PgConnection, rows: &[Row]) -> Result<()> {
        const RECORDS: &str = concat!(
            record_head!(),
            "SELECT event_id, partition_no, record_key, $5, $6, $7, payload, $8 \
             FROM unnest($1::uuid[], $2::int2[], $3::text[], $4::bytea[]) \
             AS x (event_id, partition_no, record_key, payload)"
        );
        sqlx::query(RECORDS)
            .bind(rows.iter().map(|row| row.event_id).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.partition).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.payload.as_slice()).collect::<Vec<_>>())
            .bind(HANDLER)
            .bind(Event::RECORD_TYPE)
            .bind(CONTENT_TYPE)
            .bind(HEADERS)
            .execute(conn)
            .await?;
        Ok(())
    }
}

impl Insert for MySql {
    const CREATE_BUSINESS: &'static str = "CREATE TABLE keylane_bench_business (\
         id bigint PRIMARY KEY AUTO_INCREMENT, business_key varchar(255) NOT NULL, body text NOT NULL)";

    // The key is a column of bytes.
    singly!(MySqlConnection, "(?, ?)", "(?, ?, ?, ?, ?, ?, ?, ?)", as_bytes);
    by_values!(MySqlConnection, as_bytes);
}

impl Insert for Sqlite {
    const CREATE_BUSINESS: &'static str = "CREATE TABLE keylane_bench_business (\
         id INTEGER PRIMARY KEY, business_key TEXT NOT NULL, body TEXT NOT NULL)";

    singly!(SqliteConnection, "(?, ?)", "(?, ?, ?, ?, ?, ?, ?, ?)", as_str);
    by_values!(SqliteConnection, as_str);
}
