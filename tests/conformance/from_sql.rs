//! Scheduling from plain SQL: the same hash, the same rows.

use keylane::{Partition, handler::Route, inner::Pick};

use crate::{
    outbox::{ALL, Outbox},
    target::SqlTarget,
};

/// Keys of the golden vectors with their partitions.
fn vectors() -> Vec<(String, u8)> {
    let lines = include_str!("../golden/partition.csv").lines().filter(|line| !line.starts_with('#'));
    let vector = |line: &str| {
        let (hex, number) = line.rsplit_once(',').unwrap();
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        (String::from_utf8(bytes.collect()).unwrap(), number.parse().unwrap())
    };
    lines.map(vector).collect()
}

pub(crate) async fn the_partition_of_a_key_is_the_same_in_sql<T: SqlTarget>(outbox: &Outbox<T>) {
    let vectors = vectors();
    assert!(vectors.len() > 40, "{} vectors", vectors.len());
    let mut tx = outbox.begin().await;
    for (key, number) in vectors {
        let quoted = key.replace('\'', "''");
        let sql = outbox.sql(&format!("SELECT {{outbox}}partition_of('{quoted}')::int8"));
        assert_eq!(T::number(&mut tx, sql).await, i64::from(number), "key {key:?}");
        assert_eq!(Partition::of(&key).number(), number, "key {key:?}");
    }
}

pub(crate) async fn an_event_scheduled_in_sql_is_fetched_like_any_other<T: SqlTarget>(outbox: &Outbox<T>) {
    let routes = ["billing", "mail"]
        .map(|handler| Route { record_type: "order.placed".to_owned(), handler: handler.to_owned() });
    outbox.store.publish_routes(&routes).await.unwrap();
    let mut tx = outbox.begin().await;
    let sql =
        r#"SELECT {outbox}schedule('order.placed', 'order-42', '{"id": 42}', '{"trace_id": "t"}')::int8"#;
    assert_eq!(T::number(&mut tx, outbox.sql(sql)).await, 2);
    outbox.commit(tx).await;
    let records = outbox
        .store
        .fetch_by_partition(&Partition::all().collect::<Vec<_>>(), Pick::new(&[], ALL))
        .await
        .unwrap();
    let handlers: Vec<&str> = records.iter().map(|record| record.delivery.handler.as_str()).collect();
    assert_eq!(handlers, ["billing", "mail"]);
    for record in &records {
        assert_eq!(record.delivery.partition, Partition::of("order-42"));
        assert_eq!(record.delivery.trace_id(), Some("t"));
        assert_eq!(record.delivery.event_id, records[0].delivery.event_id);
        let payload: serde_json::Value = serde_json::from_slice(&record.payload).unwrap();
        assert_eq!(payload["id"], 42);
    }
}

pub(crate) async fn a_type_that_nobody_takes_is_refused_in_sql<T: SqlTarget>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    let sql = outbox.sql("SELECT {outbox}schedule('order.unheard', 'order-42', '{}')");
    let error = T::execute(&mut tx, sql).await.unwrap_err().to_string();
    assert!(error.contains("order.unheard"), "{error}");
}
