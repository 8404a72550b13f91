//! The plans of statements: rows are found by a key, however few rows there are. A table scan would wait for
//! the rows of every open transaction that has scheduled.

use std::time::Duration;

use keylane::{
    Completed, OnFailure,
    database::Database,
    inner::{Change, Repair},
};

use crate::{
    outbox::{Outbox, promptly, record, retry_after, settlement, stop},
    target::{PostgresTarget, Server, SqlTarget, Tx},
};

/// Statements on tables that no user's transaction writes, with one row per partition, instance, handler or
/// stopped lane. Some have conditions without an index; for some, a scan of few rows is cheaper.
const SMALL: &[&str] = &[
    "release_all",
    "retire_handler",
    "purge_instances",
    "purge_fences",
    "stop_lanes",
    "resume_lanes",
    "count_crash",
    "claimed_enter",
    "end_tracking_of",
    "lock_dead_letters",
    "delete_dead_letters",
];

/// The value for a list or a parameter. A fence has its server, or the plan would be empty.
fn filled(name: &str, sql: &str, home: i64) -> String {
    // A settle completes thousands of records, and stops or releases some lanes.
    let ids = if sql.contains("_lane") || sql.contains(".lane") { 1..=20 } else { 1..=1_500 };
    let mut sql = sql
        .replace("LIMIT ?", "LIMIT 10")
        .replace("{matching}", "partition_no IN ({partitions}) ORDER BY id LIMIT 10")
        .replace("{extra_columns}", "")
        .replace("{extra}", "")
        .replace("{named}", "dedup_key")
        .replace("{rows}", "(1, 1)")
        .replace("{table}", "record")
        .replace("{key}", "id")
        .replace("{keys}", "1,2")
        .replace("{find}", "1,2")
        .replace("{column}", "BIGINT")
        .replace("{given}", "x.k")
        .replace("{instance}", "'1'")
        .replace("{slot}", "1")
        .replace("{counter}", "1")
        .replace("{home}", &home.to_string())
        .replace("AS SIGNED) = ?", &format!("AS SIGNED) = {home}"))
        .replace("{counts}", "WHEN 1 THEN 1")
        .replace("{returned}", "1")
        .replace("{ids}", &ids.map(|id| id.to_string()).collect::<Vec<_>>().join(","))
        .replace("{attempts}", "0")
        .replace("{token}", "1")
        .replace("{lease}", "30000000")
        .replace("{instances}", "'1','2'")
        .replace("{partitions}", "1,2")
        .replace("{claims}", "257,258")
        .replace("{skip}", "0")
        .replace("{from}", "1")
        .replace("{to}", "100")
        .replace("{limit}", "10")
        .replace("{candidates}", "10")
        .replace("{suspected}", "IS NULL");
    let value = match name {
        "write_failures" => r#"'[{"id":1,"attempts":0,"status":4,"delay":1,"error":"no"}]'"#,
        "claimed_fail" => r#"'[{"id":1,"token":1,"counted":1,"status":4,"delay":1,"error":"no"}]'"#,
        "free_dedup_key" => "'2026-01-01'",
        // A value that is valid for some column of each type.
        _ => "'1'",
    };
    for number in (1..=6).rev() {
        sql = sql.replace(&format!("${number}"), value);
    }
    sql.replace('?', value)
}

async fn scans<T: Server>(outbox: &Outbox<T>, rows: &str) -> Vec<String> {
    let mut tx = outbox.begin().await;
    T::execute(&mut tx, T::SETUP.to_owned()).await.unwrap();
    let mut found = Vec::new();
    let home = outbox.store.server().await.unwrap().0;
    for (name, sql) in outbox.store.statements() {
        let writes = ["UPDATE", "DELETE", "INSERT"].iter().any(|word| sql.trim_start().starts_with(word));
        // A statement that skips locked rows never waits. People list failed records among millions that have
        // not failed.
        let locks = writes || sql.contains("FOR UPDATE") && !sql.contains("SKIP LOCKED");
        let locks = locks || name == "failed_ids";
        // Values that are not texts are only bound by reads, which never lock.
        if SMALL.contains(&name) || name.starts_with("insert_") || name.starts_with("join_") || !locks {
            continue;
        }
        for table in T::full_scans(&mut tx, &filled(name, &sql, home)).await {
            found.push(format!("{name} at {rows} rows: {table}"));
        }
    }
    found
}

/// Doubles the rows of a table `times` times.
async fn double<T: Server>(outbox: &Outbox<T>, times: usize) {
    for _ in 0..times {
        outbox
            .execute(
                "INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, payload) \
                 SELECT event_id, partition_no, record_key, handler, record_type, payload FROM {outbox}record",
            )
            .await;
    }
}

pub(crate) async fn statements_find_their_rows_by_a_key<T: Server>(outbox: &Outbox<T>) {
    let mut found = Vec::new();
    // PostgreSQL reads a table of few pages as a whole. Its readers never wait.
    if T::SCANS_WAIT {
        found.extend(scans(outbox, "0").await);
    }
    let keys: Vec<String> = (0..16).map(|n| format!("order-{n}")).collect();
    let mut worker = outbox.join().await;
    let ids = outbox.schedule_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for id in &ids[..10] {
        worker.settle([(*id, 0, stop())]).await;
    }
    outbox.execute(T::ANALYZE).await;
    if T::SCANS_WAIT {
        found.extend(scans(outbox, "16").await);
    }
    double(outbox, 16).await;
    outbox.execute(T::ANALYZE).await;
    found.extend(
        scans(outbox, "a million").await.into_iter().filter(|scan| T::SCANS_WAIT || scan.contains("record")),
    );
    assert!(found.is_empty(), "{found:#?}");
}

/// The statistics say that no record is delayed. By the index of delayed records, each statement about claims would
/// read all claims of all instances.
pub(crate) async fn claims_are_found_by_their_ids(outbox: &Outbox<PostgresTarget>) {
    outbox.schedule_keys(&["order-1"; 100]).await;
    outbox.execute(PostgresTarget::ANALYZE).await;
    let mut tx = outbox.begin().await;
    let settings = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off";
    PostgresTarget::execute(&mut tx, settings.to_owned()).await.unwrap();
    let about = ["take", "read", "renew", "held", "delete", "keep", "archive", "release", "fail"];
    let statements = outbox.store.statements().into_iter();
    let statements = statements
        .filter(|(name, _)| name.strip_prefix("claimed_").is_some_and(|name| about.contains(&name)));
    let mut seen = 0;
    for (name, sql) in statements {
        let plan = PostgresTarget::plan(&mut tx, &filled(name, &sql, 0)).await.join("\n");
        assert!(plan.contains("record_pkey"), "{name}: {plan}");
        seen += 1;
    }
    assert_eq!(seen, about.len());
}

/// The plan is made once per connection, and the table may be empty then.
pub(crate) async fn settles_find_their_records_by_id(outbox: &Outbox<PostgresTarget>) {
    for records in [0, 3, 500] {
        outbox.schedule_keys(&vec!["order-1"; records]).await;
        outbox.execute(PostgresTarget::ANALYZE).await;
        let mut tx = outbox.begin().await;
        let settings = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                        SET LOCAL enable_sort = off; SET LOCAL plan_cache_mode = force_generic_plan";
        PostgresTarget::execute(&mut tx, settings.to_owned()).await.unwrap();
        let statements = outbox.store.statements().into_iter();
        for (name, sql) in statements.filter(|(name, _)| ["settle_delete", "settle_by_range"].contains(name))
        {
            let types = if name == "settle_delete" { "" } else { ", int8[]" };
            let prepare = format!("PREPARE {name} (text, int8, int8, int8, int8[], int4{types}) AS {sql}");
            PostgresTarget::execute(&mut tx, prepare).await.unwrap();
            let values = if name == "settle_delete" { "" } else { ", '{3}'" };
            let execute = format!("EXECUTE {name} ('i', 0, 1, 1, '{{1}}', 0{values})");
            let plan = PostgresTarget::plan(&mut tx, &execute).await.join("\n");
            let by_id = plan.lines().skip_while(|line| !line.contains("record_pkey")).nth(1);
            let by_id = by_id.is_some_and(|line| line.contains("Index Cond: ") && line.contains("id"));
            assert!(by_id && !plan.contains("Seq Scan"), "{name} at {records} records: {plan}");
        }
    }
}

/// A transaction of a user that has scheduled and is still open.
async fn open_transaction<T: Server>(outbox: &Outbox<T>) -> Tx<T> {
    let mut open = outbox.begin().await;
    let keys = ["order-1", "order-2", "order-3"];
    outbox.insert(&mut open, &keys.map(record)).await;
    let open_key = uuid::Uuid::now_v7().to_string();
    assert!(T::Db::insert_dedup_key(&mut open, &outbox.producer, &open_key).await.unwrap());
    T::Db::lock_keys(&mut open, &outbox.producer, &keys).await.unwrap();
    open
}

pub(crate) async fn an_open_user_transaction_holds_back_no_outcome<T: Server>(outbox: &Outbox<T>) {
    for completed in [Completed::Delete, Completed::Archive, Completed::Keep] {
        let ids = outbox.schedule_keys(&["order-1"; 8]).await;
        let open = open_transaction(outbox).await;
        let worker = promptly(outbox.join()).await;
        let mut worker = worker.over(outbox.store_that(completed));
        let one = OnFailure::Continue;
        promptly(worker.settle([(ids[0], 0, Change::Complete)])).await;
        promptly(worker.settle([(ids[1], 0, stop()), (ids[2], 0, Change::Hold { behind: ids[1] })])).await;
        promptly(worker.settle([(ids[1], 1, Change::CompleteAndResume)])).await;
        promptly(worker.settle([(ids[3], 0, retry_after(Duration::ZERO))])).await;
        promptly(worker.settle([(
            ids[4],
            0,
            Change::Fail { counted: true, error: "no".to_owned(), lane: one },
        )]))
        .await;
        promptly(worker.settle([(ids[5], 0, Change::Unroutable)])).await;
        promptly(worker.settle([(ids[5], 0, Change::Resume)])).await;
        // With an outdated count, the settle reads its records again.
        promptly(worker.settle([(ids[6], 7, Change::Complete), (ids[7], 0, Change::Complete)])).await;
        // MariaDB makes a subquery of a list of more than a thousand ids, unless its setting forbids it.
        let many = outbox.schedule_keys(&["order-2"; 1_500]).await;
        let done = many.iter().map(|id| settlement((*id, 0, Change::Complete))).collect();
        assert_eq!(promptly(worker.settle_all(done)).await.applied, 1_500);
        outbox.commit(open).await;
    }
}

pub(crate) async fn an_open_user_transaction_holds_back_no_repairing<T: Server>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3", "order-1"]).await;
    let mut worker = outbox.join().await;
    for id in &ids[..3] {
        let lane = OnFailure::Block;
        worker.settle([(*id, 0, Change::Fail { counted: true, error: "no".to_owned(), lane })]).await;
    }
    worker.settle([(ids[3], 0, Change::Hold { behind: ids[0] })]).await;
    let _open = open_transaction(outbox).await;
    for (id, repair) in ids.iter().zip([Repair::Retry, Repair::Replace(b"{}".to_vec()), Repair::Discard]) {
        assert!(promptly(outbox.store.repair(*id, &repair)).await.unwrap(), "{repair:?}");
    }
    promptly(outbox.store.evict(worker.id, None)).await.unwrap();
    promptly(outbox.store.leave(worker.id)).await.unwrap();
    assert_eq!(promptly(outbox.store.purge_instances(Duration::ZERO)).await.unwrap(), 1);
}

pub(crate) async fn an_open_user_transaction_holds_back_no_purge<T: Server>(outbox: &Outbox<T>) {
    for completed in [Completed::Archive, Completed::Keep] {
        let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
        let mut worker = outbox.join().await.over(outbox.store_that(completed));
        worker.settle([(ids[0], 0, Change::Complete), (ids[1], 0, Change::Complete)]).await;
    }
    let mut tx = outbox.begin().await;
    assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, "old").await.unwrap());
    outbox.commit(tx).await;
    crate::outbox::a_moment().await;
    let _open = open_transaction(outbox).await;
    let purged = promptly(outbox.store.purge(Duration::ZERO, Duration::ZERO)).await.unwrap();
    assert_eq!(purged, 5, "two archived, two kept, one dedup key");
}
