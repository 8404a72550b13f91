//! Dead letters by the file.

use sqlx::{Connection, PgConnection};

use super::{
    away::BROKER,
    broker::{arrived, count, is_in_order, topic, unused_topic},
    process::Settings,
    stage::{Producer, settings},
};
use crate::keylane::on_postgres;

#[tokio::test]
async fn what_kafka_refuses_goes_to_the_dead_letters_of_its_route() {
    let _shared = BROKER.read().await;
    on_postgres("relay_dead", async |url| {
        let (missing, letters) = (unused_topic(), topic().await);
        let text = settings(url, &[("order.placed", &missing)]);
        let text = text.replace("[relay.kafka]", "[relay.kafka]\npatience = '2s'");
        let file = Settings::new("dead", &format!("{text}dead_letters = '{letters}'\n"));
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        Producer::connect(url).await.schedule("order.placed", 3, 0, 4).await;
        is_in_order(&arrived(&letters, 12).await, 3, 4);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}

/// By SQL, as somebody does who has no Rust at hand; the statements are those of the page.
#[tokio::test]
async fn what_kafka_refuses_waits_in_the_table_until_sql_schedules_it_again() {
    let _shared = BROKER.read().await;
    on_postgres("relay_dead_table", async |url| {
        let (missing, topic) = (unused_topic(), topic().await);
        let text = settings(url, &[("order.placed", &missing)]) + "dead_letter_table = true\n";
        let text = text.replace("[relay.kafka]", "[relay.kafka]\npatience = '2s'");
        let file = Settings::new("dead-table", &text);
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        Producer::connect(url).await.schedule("order.placed", 3, 0, 4).await;
        let mut conn = PgConnection::connect(url).await.unwrap();
        let all = "SELECT count(*) = 12 AND count(DISTINCT event_id) = 12 AND min(target) = $1 FROM outbox_dead_letter";
        while !sqlx::query_scalar::<_, Option<bool>>(all).bind(&missing).fetch_one(&mut conn).await.unwrap().unwrap_or(false) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));

        let page = include_str!("../../../../../docs/relay.md");
        let (_, block) = page.split_once("```sql\nBEGIN;\nINSERT INTO outbox_record").expect("the statements of the page");
        let (statements, _) = block.split_once("```").unwrap();
        let statements = format!("BEGIN; INSERT INTO outbox_record{statements}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut conn).await.unwrap();
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox_dead_letter").fetch_one(&mut conn).await.unwrap();
        assert_eq!(left, 0);

        let file = Settings::new("dead-table", &text.replace(&missing, &topic));
        let relay = file.start().await;
        let content = arrived(&topic, 12).await;
        is_in_order(&content, 3, 4);
        assert_eq!(count(&content), 12);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}
