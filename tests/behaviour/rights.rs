//! The rights and the handwritten statements of the page on the schema.

use keylane::{
    OrderLevel, Outbox, ScheduleOptions,
    admin::{Filter, Rights, Status},
    database::Database,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    ledger::{Ledger, placed},
    mistakes::Door,
    stage::{Stage, until_count, until_empty},
    target::{PostgresTarget, SqlTarget},
    user::{User, qualifier},
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

/// The statement of the page, with values for its parameters.
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
    let of_mysql = "LIKE REPLACE(REPLACE(record_type, '_', '|_'), '*', '%') ESCAPE '|'";
    assert!(page.contains(of_mysql), "the condition on the page");
    let statement =
        if T::Db::NAME == "SQLite" { statement } else { statement.replace("GLOB record_type", of_mysql) };
    let row = "INSERT INTO {outbox}handler (record_type, handler) VALUES";
    stage.execute(&format!("{row} ('order.placed', 'mail'), ('*', 'mail'), ('order.placed', 'books')")).await;
    stage.execute(&format!("{row} ('o*.*d', 'places'), ('order_*', 'nobody'), ('ORDER.*', 'nobody')")).await;
    assert_eq!(stage.execute(&statement).await, 3);
}

/// An outbox of a user with the rights of this role's script, and no others.
async fn of_role<T: Door + SqlTarget>(stage: &Stage<T>, user: &str, rights: Rights) -> OutboxOf<T> {
    let pool = T::pool_of(&stage.pool, user).await;
    T::order(&stage.pool, user, T::REVOKE).await;
    let script = stage.outbox([]).await.grant_script(rights, user);
    T::order(&stage.pool, user, &script).await;
    let mut config = stage.config.clone();
    config.schedule.order = OrderLevel::Strict;
    let builder =
        Outbox::builder(pool.clone()).config(config).handler(Ledger::default().keeper("bookkeeper"));
    (pool, builder.build().await.unwrap())
}

type OutboxOf<T> = (crate::target::Pool<T>, Outbox<<T as crate::target::Target>::Db>);

async fn dismiss<T: Door + SqlTarget>(stage: &Stage<T>, pool: &crate::target::Pool<T>, user: &str) {
    T::close(pool).await;
    T::order(&stage.pool, user, T::DROP_GRANTS).await;
    T::dismiss(&stage.pool, user).await;
}

pub(crate) async fn each_role_does_its_work_with_the_rights_of_its_script<T: Door + SqlTarget>(
    stage: &Stage<T>,
) {
    let (owner, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    running.shutdown().await;
    let names = ["p", "w", "a"].map(|role| format!("{role}{}", stage.unique()));

    let (pool, producer) = of_role(stage, &names[0], Rights::Producer).await;
    for (key, amount) in [("order-1", 1), ("order-2", 2), ("order-3", 3)] {
        let mut work = T::begin(&pool).await;
        let options = ScheduleOptions::new().dedup_key(key);
        producer.schedule_with(&mut work, &placed(key, amount), options).await.unwrap();
        T::commit(work).await;
    }
    let (verb, rest) = T::CALL;
    let call = format!(
        "{verb} {{outbox}}schedule('order.placed', 'order-3', '{{\"key\": \"order-3\", \"number\": 4}}'{rest})"
    );
    let mut work = T::begin(&pool).await;
    T::execute(&mut work, call.replace("{outbox}", &qualifier(&stage.tables))).await.unwrap();
    T::commit(work).await;
    assert!(producer.admin().counts().await.unwrap_err().to_string().contains("denied"));
    dismiss(stage, &pool, &names[0]).await;

    stage.execute("UPDATE {outbox}record SET status = 2 WHERE record_key <> 'order-3'").await;
    let letter = "INSERT INTO {outbox}dead_letter (id, created_at, event_id, partition_no, record_key, handler, \
                  record_type, content_type, payload, attempts, target, error, error_kind) SELECT id, created_at, \
                  event_id, partition_no, record_key, handler, record_type, content_type, payload, 1, 'bank', 'no', \
                  'error' FROM {outbox}record WHERE record_key = 'order-1'";
    assert_eq!(stage.execute(letter).await, 1);
    let (pool, admin) = of_role(stage, &names[2], Rights::Admin).await;
    let page = admin.admin();
    let failed = page.failed(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(failed.len(), 2);
    assert!(page.retry(failed[0].id).await.unwrap() && page.discard(failed[1].id).await.unwrap());
    assert_eq!(page.retry_dead_letters(&Filter::all(), 0).await.unwrap().changed, 1);
    assert!(page.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty());
    assert!(!page.instances(10).await.unwrap().is_empty());
    assert_eq!(page.partitions().await.unwrap().len(), 256);
    assert!(!page.drain(keylane::admin::InstanceId::generate()).await.unwrap());
    page.purge().await.unwrap();
    page.retire_handler("nobody").await.unwrap();
    assert!(admin.start().await.is_err());
    dismiss(stage, &pool, &names[2]).await;

    until_count(&owner, Status::Pending, 4).await;
    let (pool, worker) = of_role(stage, &names[1], Rights::Worker).await;
    let running = worker.start().await.unwrap();
    until_empty(&owner).await;
    assert!(running.shutdown().await.graceful);
    dismiss(stage, &pool, &names[1]).await;
}
