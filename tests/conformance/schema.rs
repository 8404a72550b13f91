//! Migrations, and schemas that do not fit the build.

use keylane::{Completed, SchemaError};

use crate::{
    outbox::Outbox,
    target::{SqlTarget, Target},
};

/// The tables that every database has.
const TABLES: [&str; 11] = [
    "meta",
    "record",
    "archive",
    "dead_letter",
    "lane",
    "instance",
    "fence",
    "partition",
    "handler",
    "dedup",
    "start",
];

pub(crate) async fn a_migrated_schema_fits<T: Target>(outbox: &Outbox<T>) {
    outbox.store.check().await.unwrap();
}

pub(crate) async fn migrating_again_changes_nothing<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    for _ in 0..2 {
        outbox.store.migrate().await.unwrap();
        outbox.store_that(Completed::Keep).migrate().await.unwrap();
    }
    outbox.store.check().await.unwrap();
    assert_eq!(outbox.pending_ids("order-1").await, [id]);
}

pub(crate) async fn four_may_migrate_at_once<T: Target>(outbox: &Outbox<T>) {
    let fresh = outbox.beside();
    let stores = [0; 4].map(|_| fresh.store_that(Completed::Delete));
    let done =
        tokio::join!(stores[0].migrate(), stores[1].migrate(), stores[2].migrate(), stores[3].migrate());
    for done in [done.0, done.1, done.2, done.3] {
        done.unwrap();
    }
    fresh.store.check().await.unwrap();
    fresh.schedule_keys(&["order-1"]).await;
}

pub(crate) async fn a_missing_schema_is_named<T: SqlTarget>(outbox: &Outbox<T>) {
    let refused = outbox.beside().store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Missing), "{refused:?}");
    assert!(refused.to_string().contains("migrate"), "{refused}");
}

pub(crate) async fn a_newer_schema_is_refused<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("UPDATE {outbox}meta SET schema_version = 99").await;
    let refused = outbox.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Newer { found: 99, .. }), "{refused:?}");
}

pub(crate) async fn an_older_schema_is_refused<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("UPDATE {outbox}meta SET schema_version = 1").await;
    let refused = outbox.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Older { found: 1, .. }), "{refused:?}");
}

pub(crate) async fn another_hash_is_refused<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("UPDATE {outbox}meta SET partition_hash = 'murmur3'").await;
    match outbox.store.check().await.unwrap_err() {
        SchemaError::Hash { found, expected } => {
            assert!(found.contains("murmur3") && expected.contains("xxh3_64"), "{found}, {expected}");
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn another_count_of_partitions_is_refused<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("UPDATE {outbox}meta SET partition_count = 64").await;
    let refused = outbox.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Hash { .. }), "{refused:?}");
}

pub(crate) async fn missing_partition_rows_are_refused<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("DELETE FROM {outbox}partition WHERE partition_no IN (3, 4)").await;
    let refused = outbox.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Partitions { found: 254 }), "{refused:?}");
}

pub(crate) async fn a_check_tells_a_lost_table_from_a_good_schema<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("DROP TABLE {outbox}partition").await;
    assert!(outbox.store.check().await.is_err());
}

pub(crate) async fn the_script_names_every_table<T: SqlTarget>(outbox: &Outbox<T>) {
    let script = outbox.store.script(0);
    for table in TABLES {
        let name = outbox.sql(&format!("{{outbox}}{table}"));
        assert!(script.contains(&name), "{name} is not in the script");
    }
    assert!(!script.contains('{') || !script.contains("{outbox}"), "a token is left");
    assert!(!script.contains("{index}"), "a token is left");
}

pub(crate) async fn a_schema_made_from_the_script_fits<T: SqlTarget>(outbox: &Outbox<T>) {
    let fresh = outbox.beside();
    if let Some(schema) = fresh.tables.schema() {
        outbox.execute(&format!("CREATE SCHEMA {schema}")).await;
    }
    // The script as a DBA runs it, without the history of migrations.
    fresh.execute(&without_delimiters(&fresh.store.script(0))).await;
    fresh.store.check().await.unwrap();
    fresh.store.migrate().await.unwrap();
    fresh.schedule_keys(&["order-1"]).await;
    assert_eq!(fresh.pending().await.len(), 1);
}

/// Does what the mysql client does with the delimiters of a script.
fn without_delimiters(script: &str) -> String {
    script.replace("\nDELIMITER //", "").replace("\nEND//", "\nEND;").replace("\nDELIMITER ;", "")
}

/// Tables made by a DBA with the script of this version, beside those of the case.
async fn made_by_hand<T: SqlTarget>(outbox: &Outbox<T>, version: i64) -> Outbox<T> {
    let by_hand = outbox.beside();
    if let Some(schema) = by_hand.tables.schema() {
        outbox.execute(&format!("CREATE SCHEMA {schema}")).await;
    }
    let (whole, rest) = (by_hand.store.script(0), by_hand.store.script(version));
    by_hand.execute(&without_delimiters(whole.strip_suffix(&rest).unwrap())).await;
    by_hand
}

pub(crate) async fn older_tables_of_a_dba_are_brought_up<T: SqlTarget>(outbox: &Outbox<T>) {
    let by_hand = made_by_hand(outbox, 2).await;
    let refused = by_hand.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Older { found: 2, .. }), "{refused:?}");
    for _ in 0..2 {
        by_hand.store.migrate().await.unwrap();
        by_hand.store.check().await.unwrap();
    }
    by_hand.schedule_keys(&["order-1"]).await;
}

pub(crate) async fn a_dba_brings_tables_up_by_the_script_from_their_version<T: SqlTarget>(
    outbox: &Outbox<T>,
) {
    let by_hand = made_by_hand(outbox, 2).await;
    by_hand.execute(&without_delimiters(&by_hand.store.script(2))).await;
    by_hand.store.check().await.unwrap();
    by_hand.store.migrate().await.unwrap();
    assert_eq!(by_hand.store.script(5), "");
}

pub(crate) async fn tables_without_a_version_are_taken_over<T: SqlTarget>(outbox: &Outbox<T>) {
    let by_hand = made_by_hand(outbox, 5).await;
    by_hand.execute("DELETE FROM {outbox}meta").await;
    let refused = by_hand.store.check().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Missing), "{refused:?}");
    by_hand.store.migrate().await.unwrap();
    by_hand.store.check().await.unwrap();
}

pub(crate) async fn tables_that_differ_are_refused_with_what_they_lack<T: SqlTarget>(outbox: &Outbox<T>) {
    let by_hand = made_by_hand(outbox, 5).await;
    by_hand.execute("ALTER TABLE {outbox}partition RENAME COLUMN crashes TO crushes").await;
    for refused in [by_hand.store.check().await, by_hand.store.migrate().await] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, SchemaError::Differs { expected: 5, .. }), "{refused:?}");
        assert!(refused.to_string().contains("crashes"), "{refused}");
    }
}

pub(crate) async fn a_migration_that_cannot_succeed_fails_at_once<T: SqlTarget>(outbox: &Outbox<T>) {
    let by_hand = made_by_hand(outbox, 2).await;
    by_hand.execute("ALTER TABLE {outbox}partition ADD COLUMN crashes INT NOT NULL DEFAULT 0").await;
    // If it were tried again, the pauses alone would take longer than this. A busy machine does not take so long each
    // time.
    for _ in 0..3 {
        let migrating = tokio::time::timeout(std::time::Duration::from_secs(8), by_hand.store.migrate());
        if let Ok(migrated) = migrating.await {
            migrated.unwrap_err();
            return;
        }
    }
    panic!("tried again though nothing could change");
}

/// A build that is one version older than the tables.
pub(crate) async fn a_schema_one_version_ahead_is_accepted<T: SqlTarget>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    outbox.execute("ALTER TABLE {outbox}record ADD COLUMN more INT").await;
    outbox.execute("UPDATE {outbox}meta SET schema_version = 6").await;
    outbox.store.check().await.unwrap();
    outbox.store.migrate().await.unwrap();
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    worker.settle([(id, 0, keylane::inner::Change::Complete)]).await;
    assert!(outbox.pending().await.is_empty());
    assert_eq!(outbox.number("SELECT schema_version FROM {outbox}meta").await, 6);
}
