//! What is deleted, and what a page shows.

use std::time::Duration;

use keylane_inbox::InboxError;
use keylane_sql::{Family, SqlDatabase};

use crate::{
    stage::Stage,
    target::{Target, on_each, past},
};

on_each! {
    a_purge_deletes_what_is_old_and_nothing_else,
    no_statement_of_a_purge_deletes_more_than_a_step,
    an_overview_counts_group_by_group,
}

const HOUR: Duration = Duration::from_secs(3600);

async fn a_purge_deletes_what_is_old_and_nothing_else<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let inbox = &stage.inbox;
    let ids: Vec<String> = (0..2500).map(|number| format!("old-{number:04}")).collect();
    for ids in ids.chunks(500) {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        inbox.run_batch(&ids, "group", async |_, _: &[usize]| Ok::<_, sqlx::Error>(())).await.unwrap();
    }
    inbox.write_failure("old-failed", "group", "no", Duration::ZERO).await.unwrap();
    drop(inbox.claim("old-claim", "group").await.unwrap());
    assert_eq!(inbox.purge(HOUR).await.unwrap(), 0);
    let past = past::<T::Db>();
    stage
        .execute(&format!("UPDATE {{}}message SET finished_at = {past} WHERE finished_at IS NOT NULL"))
        .await;
    stage.execute(&format!("UPDATE {{}}message SET lease_until = {past} WHERE status = 'PROCESSING'")).await;
    inbox.run("new", "group", async |_| Ok::<_, sqlx::Error>(())).await.unwrap();
    drop(inbox.claim("new-claim", "group").await.unwrap());
    assert_eq!(inbox.purge(HOUR).await.unwrap(), 2502);
    assert_eq!(stage.messages("1 = 1").await, 2);
    stage.end().await;
}

async fn no_statement_of_a_purge_deletes_more_than_a_step<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let (family, past) = (T::Db::DIALECT.family, past::<T::Db>());
    let (of_past, id) = match family {
        Family::Postgres => (format!("timestamptz {past} + interval '1 second' * n"), "text"),
        Family::MySql => (format!("timestamp {past} + INTERVAL n SECOND"), "varbinary(255)"),
        Family::Sqlite => (format!("{past} + n * 1000000"), "text"),
    };
    // What refers to a row keeps it, and with it all that its statement would have deleted.
    let holds =
        "(g {}, id {}, FOREIGN KEY (id, g) REFERENCES {m} (event_id, consumer_group))".replace("{}", id);
    let message = format!("{}message", stage.prefix);
    stage.execute(&format!("CREATE TABLE {{}}holds {}", holds.replace("{m}", &message))).await;
    for (status, time) in
        [("PROCESSING", "lease_until"), ("SUCCESS", "finished_at"), ("FAILED", "finished_at")]
    {
        stage
            .execute(&format!(
                "INSERT INTO {{}}message (consumer_group, event_id, status, attempts, token, owner, received_at, {time}) \
                 WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 49) \
                 SELECT 'group', concat('old-', n), '{status}', 1, 'token', 'owner', {of_past}, {of_past} \
                 FROM (SELECT 50 * a.n + b.n + 1 AS n FROM d a JOIN d b ON 1 = 1) old"
            ))
            .await;
        stage.execute("INSERT INTO {}holds (g, id) VALUES ('group', 'old-1500')").await;
        let refused = stage.inbox.purge(HOUR).await;
        assert!(matches!(refused, Err(InboxError::Database { .. })), "{status}: {refused:?}");
        // The first step has deleted what is oldest, and the second one has failed.
        assert_eq!(stage.messages("1 = 1").await, 1500, "{status}");
        stage.execute("DELETE FROM {}holds").await;
        assert_eq!(stage.inbox.purge(HOUR).await.unwrap(), 1500, "{status}");
    }
    stage.execute("DROP TABLE {}holds").await;
    stage.end().await;
}

async fn an_overview_counts_group_by_group<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let inbox = &stage.inbox;
    assert!(inbox.overview().await.unwrap().is_empty());
    for id in ["a", "b"] {
        let slow = async |_: &mut crate::target::Connection<T>| {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, sqlx::Error>(())
        };
        inbox.run(id, "billing", slow).await.unwrap();
    }
    inbox.write_failure("c", "billing", "no", Duration::ZERO).await.unwrap();
    drop(inbox.claim("a", "mail").await.unwrap());
    let found = inbox.overview().await.unwrap();
    let [billing, mail] = &*found else { panic!("{found:?}") };
    assert_eq!((&*billing.group, billing.success, billing.failed, billing.recent), ("billing", 2, 1, 2));
    assert!(billing.recent_average >= Duration::from_millis(20), "{billing:?}");
    assert!(billing.recent_longest >= billing.recent_average, "{billing:?}");
    assert_eq!((&*mail.group, mail.processing, mail.recent), ("mail", 1, 0));
    stage.end().await;
}
