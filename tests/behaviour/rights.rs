//! What the page on the schema says of rights and of statements by hand.

use keylane::{Outbox, ScheduleOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    ledger::{Ledger, placed},
    stage::Stage,
    target::{PostgresTarget, SqlTarget},
    user::User,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_producer_needs_the_rights_of_the_page() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    let (_, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    running.shutdown().await;
    let role = stage.tables.schema().unwrap().to_owned();
    let grants = [
        format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {role} TO {role}"),
        format!("GRANT INSERT ON {{outbox}}record, {{outbox}}dedup TO {role}"),
        format!("GRANT SELECT ON {{outbox}}handler TO {role}"),
        format!("GRANT USAGE ON SEQUENCE {{outbox}}record_id_seq TO {role}"),
    ];
    let options: PgConnectOptions = (*stage.pool.connect_options()).clone().username(&role);
    let mut refused = Vec::new();
    for grant in &grants {
        stage.execute(grant).await;
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options.clone());
        let outbox = Outbox::builder(pool.clone()).config(stage.config.clone()).build().await.unwrap();
        let mut work = pool.begin().await.unwrap();
        let options = ScheduleOptions::new().dedup_key("once");
        refused.push(outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.err());
    }
    let [without_tables, without_list, without_sequence, with_all] = &refused[..] else {
        panic!("{refused:?}")
    };
    for error in [without_tables, without_list, without_sequence] {
        assert!(error.as_ref().unwrap().to_string().contains("permission denied"), "{error:?}");
    }
    assert!(with_all.is_none(), "{with_all:?}");
    stage.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    stage.erase().await;
}

/// The statement as the page has it, with values for its parameters.
pub(crate) async fn the_insert_of_the_page_writes_one_row_for_each_handler<T: User + SqlTarget>(
    stage: &Stage<T>,
) {
    let page = include_str!("../../docs/schema.md");
    let (_, block) = page.split_once("```sql\nINSERT INTO outbox_record").expect("the statement on the page");
    let (statement, _) = block.split_once(';').unwrap();
    let statement = format!("INSERT INTO outbox_record{statement}")
        .replace(":event_id", "X'0123456789abcdef0123456789abcdef'")
        .replace(":payload", "X'7b226964223a34327d'")
        .replace(":xxh3_64_of_key_mod_256", "7")
        .replace("outbox_", "{outbox}");
    let row = "INSERT INTO {outbox}handler (record_type, handler) VALUES";
    stage.execute(&format!("{row} ('order.placed', 'mail'), ('*', 'mail'), ('order.placed', 'books')")).await;
    assert_eq!(stage.execute(&statement).await, 2);
}
