//! Writes that must survive a crash of the server are committed durably, whatever the server's default.

use keylane::Outbox;
use sqlx::Row;

use crate::{
    ledger::{Ledger, placed},
    recorder::eventually,
    stage::{Stage, until_empty},
    target::PostgresTarget,
};

/// Each statement that writes a table of the cluster writes down the setting that it runs with.
const TRIGGERS: &[&str] = &[
    "CREATE TABLE {outbox}settings (what text, setting text)",
    "CREATE FUNCTION {outbox}keep_setting() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \
     INSERT INTO {outbox}settings VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END$$",
    "CREATE TRIGGER keep_setting AFTER INSERT OR UPDATE ON {outbox}instance EXECUTE FUNCTION {outbox}keep_setting()",
    "CREATE TRIGGER keep_setting AFTER UPDATE ON {outbox}partition EXECUTE FUNCTION {outbox}keep_setting()",
];

/// The user's connections, and therefore the server's defaults for the workers, do not wait for the disk, and the
/// user's statement for new connections says so, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_claims_and_beats_commit_durably() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    for statement in TRIGGERS {
        stage.execute(statement).await;
    }
    let options = stage.pool.connect_options().as_ref().clone().options([("synchronous_commit", "off")]);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let default: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&pool).await.unwrap();
    assert_eq!(default, "off");
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.database.on_connect = vec!["SET synchronous_commit = off".to_owned()];
    let builder = Outbox::builder(pool).config(config).handler(ledger.keeper("bookkeeper"));
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_empty(&outbox).await;
    let sql = format!(
        "SELECT what || ' ' || setting FROM {}settings GROUP BY 1 HAVING count(*) > 0",
        crate::user::qualifier(&stage.tables)
    );
    let settings = eventually("writes of both tables", async || {
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql.clone())).fetch_all(&stage.pool).await.unwrap();
        let settings: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let of = |table: &str| settings.iter().any(|line| line.contains(table));
        (of("instance") && of("partition")).then_some(settings)
    })
    .await;
    assert!(settings.iter().all(|line| line.ends_with(" on")), "{settings:?}");
    running.shutdown().await;
    stage.erase().await;
}
