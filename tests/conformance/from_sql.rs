//! Scheduling from plain SQL: the same hash, the same rows.

use keylane::{handler::Route, inner::Pick, partition::Partition};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use crate::{
    outbox::{ALL, Outbox},
    target::{Connection, MariaDbTarget, MySqlTarget, PostgresTarget, SqlTarget},
};

/// A store that schedules by a call from SQL. The texts of a call are SQL.
pub(crate) trait FromSql: SqlTarget {
    /// The text of these bytes of UTF-8.
    fn text(bytes: &[u8]) -> String;
    /// Calls `outbox_schedule`.
    fn schedule(
        outbox: &Outbox<Self>,
        conn: &mut Connection<Self>,
        arguments: [&str; 5],
    ) -> impl Future<Output = Result<(), sqlx::Error>>;
    /// The result of `outbox_partition_of` for this text.
    fn partition_of(
        outbox: &Outbox<Self>,
        conn: &mut Connection<Self>,
        key: &str,
    ) -> impl Future<Output = Result<i64, sqlx::Error>>;
}

impl FromSql for PostgresTarget {
    fn text(bytes: &[u8]) -> String {
        format!("convert_from('\\x{}', 'UTF8')", hex(bytes))
    }

    async fn schedule(
        outbox: &Outbox<Self>,
        conn: &mut Connection<Self>,
        arguments: [&str; 5],
    ) -> Result<(), sqlx::Error> {
        let [record_type, key, payload, headers, event_id] = arguments;
        let event_id = if event_id == "NULL" { "gen_random_uuid()" } else { event_id };
        let call =
            format!("SELECT {{outbox}}schedule({record_type}, {key}, {payload}, {headers}, {event_id})");
        Self::execute(conn, outbox.sql(&call)).await.map(drop)
    }

    async fn partition_of(
        outbox: &Outbox<Self>,
        conn: &mut Connection<Self>,
        key: &str,
    ) -> Result<i64, sqlx::Error> {
        let call = outbox.sql(&format!("{{outbox}}partition_of({key})"));
        Self::execute(conn, format!("SELECT set_config('keylane.case', {call}::text, false)")).await?;
        Ok(Self::number(conn, "SELECT current_setting('keylane.case')::int8".to_owned()).await)
    }
}

macro_rules! by_procedures {
    ($($target:ty),*) => {$(
        impl FromSql for $target {
            fn text(bytes: &[u8]) -> String {
                format!("CONVERT(x'{}' USING utf8mb4)", hex(bytes))
            }

            async fn schedule(
                outbox: &Outbox<Self>,
                conn: &mut Connection<Self>,
                arguments: [&str; 5],
            ) -> Result<(), sqlx::Error> {
                let call = outbox.sql(&format!("CALL {{outbox}}schedule({})", arguments.join(", ")));
                Self::execute(conn, call).await.map(drop)
            }

            async fn partition_of(
                outbox: &Outbox<Self>,
                conn: &mut Connection<Self>,
                key: &str,
            ) -> Result<i64, sqlx::Error> {
                let call = outbox.sql(&format!("CALL {{outbox}}partition_of({key}, @partition_no)"));
                Self::execute(conn, call).await?;
                Ok(Self::number(conn, "SELECT CAST(@partition_no AS SIGNED)".to_owned()).await)
            }
        }
    )*};
}

by_procedures!(MariaDbTarget, MySqlTarget);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys of the golden vectors with their partitions.
fn vectors() -> Vec<(String, u8)> {
    let lines = include_str!("../golden/partition.csv").lines().filter(|line| !line.starts_with('#'));
    let vector = |line: &str| {
        let (hex, number) = line.rsplit_once(',').unwrap();
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        (String::from_utf8(bytes.collect()).unwrap(), number.parse().unwrap())
    };
    lines.map(vector).collect()
}

pub(crate) async fn the_partition_of_a_key_is_the_same_in_sql<T: FromSql>(outbox: &Outbox<T>) {
    let vectors = vectors();
    assert!(vectors.len() > 40, "{} vectors", vectors.len());
    let mut tx = outbox.begin().await;
    for (key, number) in vectors {
        let found = T::partition_of(outbox, &mut tx, &T::text(key.as_bytes())).await.unwrap();
        assert_eq!(found, i64::from(number), "key {key:?}");
        assert_eq!(Partition::of(&key).number(), number, "key {key:?}");
    }
}

/// Every length of a key with one byte per character, and random text of any script.
pub(crate) async fn the_partition_of_any_key_is_the_same_in_sql<T: FromSql>(outbox: &Outbox<T>) {
    let mut runner = TestRunner::deterministic();
    let mut draw = |pattern: &str| {
        let key = prop::string::string_regex(pattern).unwrap().new_tree(&mut runner).unwrap();
        key.current()
    };
    let plain = (1..=255).map(|length| draw(&format!("[ -~]{{{length}}}"))).collect::<Vec<_>>();
    let texts = (0..300).map(|_| draw("[^\\x00]{1,63}"));
    let keys: Vec<String> = texts.chain(plain).collect();
    let mut tx = outbox.begin().await;
    for key in keys.iter().filter(|key| key.len() <= 255) {
        let found = T::partition_of(outbox, &mut tx, &T::text(key.as_bytes())).await.unwrap();
        assert_eq!(found, i64::from(Partition::of(key).number()), "key {key:?}, {} bytes", key.len());
    }
}

pub(crate) async fn a_key_that_is_empty_or_too_long_is_refused_in_sql<T: FromSql>(outbox: &Outbox<T>) {
    let with_an_accent = format!("{}é", "a".repeat(254));
    for key in ["", &"a".repeat(256), &"a".repeat(300), &with_an_accent, &"a".repeat(2000)] {
        let mut conn = outbox.begin().await;
        let refused = T::partition_of(outbox, &mut conn, &T::text(key.as_bytes())).await.unwrap_err();
        // A server may refuse a text that is longer than a key with its own error.
        let refused = refused.to_string();
        assert!(
            refused.contains("1 to 255 bytes") || refused.contains("too long"),
            "{} bytes: {refused}",
            key.len()
        );
    }
}

const ORDER: [&str; 5] =
    ["'order.placed'", "'order-42'", r#"'{"id": 42}'"#, r#"'{"trace_id": "t"}'"#, "NULL"];

async fn list_handlers<T: FromSql>(outbox: &Outbox<T>) {
    let listed = [
        ("order.placed", "billing"),
        ("order.placed", "mail"),
        ("*", "mail"),
        ("order.pl*", "places"),
        ("*.placed", "places"),
        ("order.p_*", "underscores"),
        ("ORDER.*", "capitals"),
    ];
    let routes = listed.map(|(record_type, handler)| Route {
        record_type: record_type.to_owned(),
        handler: handler.to_owned(),
    });
    outbox.store.publish_routes(&routes).await.unwrap();
}

pub(crate) async fn an_event_scheduled_in_sql_is_fetched_like_any_other<T: FromSql>(outbox: &Outbox<T>) {
    list_handlers(outbox).await;
    let mut tx = outbox.begin().await;
    T::schedule(outbox, &mut tx, ORDER).await.unwrap();
    let own_id = "'0190163d-8694-739b-aea5-966c26f8ad91'";
    T::schedule(outbox, &mut tx, ["'order.paid'", "'Bestellung-ä'", "'[]'", "NULL", own_id]).await.unwrap();
    outbox.commit(tx).await;
    let all: Vec<Partition> = Partition::all().collect();
    let mut records = outbox.store.fetch_by_partition(&all, Pick::new(&[], ALL)).await.unwrap();
    records.sort_by_key(|record| record.delivery.id);
    let handlers: Vec<&str> = records.iter().map(|record| record.delivery.handler.as_str()).collect();
    assert_eq!(handlers, ["billing", "mail", "places", "mail"]);
    for record in &records[..3] {
        assert_eq!(record.delivery.partition, Partition::of("order-42"));
        assert_eq!(record.delivery.trace_id(), Some("t"));
        assert_eq!(record.delivery.event_id, records[0].delivery.event_id);
        let payload: serde_json::Value = serde_json::from_slice(&record.payload).unwrap();
        assert_eq!(payload["id"], 42);
    }
    let delivery = &records[3].delivery;
    assert_eq!((delivery.key.as_str(), delivery.partition), ("Bestellung-ä", Partition::of("Bestellung-ä")));
    assert_eq!(delivery.event_id.to_string(), own_id.trim_matches('\''));
    assert!(delivery.headers.is_empty() && delivery.event_id != records[0].delivery.event_id);
}

pub(crate) async fn a_call_that_is_rolled_back_leaves_nothing<T: FromSql>(outbox: &Outbox<T>) {
    list_handlers(outbox).await;
    let mut tx = outbox.begin().await;
    T::schedule(outbox, &mut tx, ORDER).await.unwrap();
    drop(tx);
    assert!(outbox.pending().await.is_empty());
}

pub(crate) async fn a_type_that_nobody_takes_is_refused_in_sql<T: FromSql>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    let unheard = ["'order.unheard'", "'order-42'", "'{}'", "NULL", "NULL"];
    let error = T::schedule(outbox, &mut tx, unheard).await.unwrap_err().to_string();
    assert!(error.contains("order.unheard"), "{error}");
}

pub(crate) async fn what_workers_could_not_read_is_refused_in_sql<T: FromSql>(outbox: &Outbox<T>) {
    list_handlers(outbox).await;
    let replaced = |at: usize, argument| {
        let mut call = ORDER;
        call[at] = argument;
        call
    };
    let refused = [
        (replaced(0, "''"), "1 to 128 bytes"),
        (replaced(0, "NULL"), "1 to 128 bytes"),
        (replaced(1, "NULL"), "1 to 255 bytes"),
        (replaced(2, "'{'"), "json"),
        (replaced(2, "NULL"), "null"),
        (replaced(3, r#"'{"n": 1}'"#), "strings"),
        (replaced(3, r#"'{"a": "b", "c": null}'"#), "strings"),
        (replaced(3, r#"'["a"]'"#), "strings"),
        (replaced(3, r#"'"a"'"#), "strings"),
        (replaced(3, r#"'{"a": "b"'"#), "json"),
        (replaced(4, "'0190163d'"), "uuid"),
        (replaced(4, "'not-a-uuid'"), "uuid"),
    ];
    for (call, expected) in refused {
        let mut tx = outbox.begin().await;
        let error = T::schedule(outbox, &mut tx, call).await.unwrap_err().to_string();
        assert!(error.to_lowercase().contains(expected), "{call:?}: {error}");
    }
    assert!(outbox.pending().await.is_empty());
}
