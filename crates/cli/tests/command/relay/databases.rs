//! Rows by plain SQL: the procedure of MariaDB, and the statement of the schema page.

use keylane::partition::Partition;
use sqlx::{Connection, MySqlConnection, SqliteConnection};
use uuid::Uuid;

use super::{
    away::BROKER,
    broker::{arrived, count, is_in_order, topic},
    process::Settings,
    stage::settings,
};
use crate::keylane::{File, on_mariadb, on_mysql};

const CALL: &str = "CALL outbox_schedule('order.placed', ?, ?, NULL, NULL)";
const INSERT: &str =
    "INSERT INTO outbox_record (event_id, partition_no, record_key, handler, record_type, payload)
    SELECT ?, ?, ?, handler, 'order.placed', ? FROM outbox_handler
    WHERE 'order.placed' GLOB record_type GROUP BY handler";

/// Relays five numbers of three keys.
macro_rules! relays {
    ($name:literal, $url:expr, $connection:ty, $schedule:expr) => {{
        let topic = topic().await;
        let file = Settings::new($name, &settings($url, &[("order.placed", &topic)]));
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        let mut conn = <$connection>::connect($url).await.unwrap();
        for number in 0..5 {
            for key in ["key-a", "key-b", "key-c"] {
                $schedule(&mut conn, key, number).await;
            }
        }
        conn.close().await.unwrap();
        let content = arrived(&topic, 15).await;
        is_in_order(&content, 3, 5);
        assert_eq!(count(&content), 15);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    }};
}

async fn call(conn: &mut MySqlConnection, key: &str, number: u32) {
    sqlx::query(CALL).bind(key).bind(number.to_string()).execute(conn).await.unwrap();
}

#[tokio::test]
async fn rows_of_mariadb_arrive() {
    let _shared = BROKER.read().await;
    on_mariadb("relay", async |url| relays!("mariadb", url, MySqlConnection, call)).await;
}

#[tokio::test]
async fn rows_of_mysql_arrive() {
    let _shared = BROKER.read().await;
    on_mysql("relay", async |url| relays!("mysql", url, MySqlConnection, call)).await;
}

#[tokio::test]
async fn rows_of_sqlite_arrive() {
    let _shared = BROKER.read().await;
    let file = File::new("relay-sqlite-data");
    let url = file.url();
    let schedule = async |conn: &mut SqliteConnection, key: &str, number: u32| {
        let event_id = Uuid::now_v7().into_bytes().to_vec();
        let partition = i32::from(Partition::of(key).number());
        let row = sqlx::query(INSERT).bind(event_id).bind(partition).bind(key);
        let written = row.bind(number.to_string().into_bytes()).execute(conn).await.unwrap();
        assert_eq!(written.rows_affected(), 1);
    };
    relays!("sqlite", &url, SqliteConnection, schedule);
}
