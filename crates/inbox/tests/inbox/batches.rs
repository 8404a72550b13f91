//! Many messages in one transaction.

use futures::future::join_all;
use keylane_inbox::OnceError;

use crate::{
    stage::Stage,
    target::{Connection, OnPostgres, Target, on_each},
};

on_each!(a_batch_filters_what_was_seen, batches_that_overlap_have_each_effect_once);

async fn a_batch_filters_what_was_seen<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.inbox.run("b", "group", async |tx| stage.affect(tx, "b").await).await.unwrap();
    let claim = stage.inbox.claim("c", "group").await.unwrap().unwrap();
    let ids = ["d", "a", "b", "c", "a"];
    let batch = stage.inbox.run_batch(&ids, "group", async |_, _: &[usize]| Err::<(), _>("no")).await;
    assert!(matches!(batch, Err(OnceError::Work("no"))));
    let work = async |tx: &mut Connection<T>, fresh: &[usize]| {
        for place in fresh {
            stage.affect(tx, ids[*place]).await?;
        }
        Ok::<_, sqlx::Error>(fresh.len())
    };
    let batch = stage.inbox.run_batch(&ids, "group", work).await.unwrap();
    assert_eq!((batch.done, &*batch.fresh, &*batch.seen), (Some(2), &[0, 1][..], &[2, 4][..]));
    assert_eq!(batch.in_progress.iter().map(|(place, ..)| *place).collect::<Vec<_>>(), [3]);
    let batch = stage.inbox.run_batch(&ids, "group", work).await.unwrap();
    assert_eq!((batch.done, batch.fresh.len(), batch.seen.len()), (None, 0, 4));
    claim.complete().await.unwrap();

    let mut tx = stage.inbox.pool().begin().await.unwrap();
    let ids = ["c", "e"];
    let work = async |tx: &mut Connection<T>, fresh: &[usize]| {
        assert_eq!(fresh, [1]);
        stage.affect(tx, "e").await
    };
    stage.inbox.once_batch(&mut tx, &ids, "group", work).await.unwrap();
    tx.commit().await.unwrap();
    for id in ["a", "b", "d", "e"] {
        assert_eq!(stage.effects_of(id).await, 1, "{id}");
    }
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 1").await, 5);
    stage.end().await;
}

async fn batches_that_overlap_have_each_effect_once<T: Target>() {
    let Some(stage) = Stage::<T>::with("REPEATABLE READ", |builder| builder).await else { return };
    let ids: Vec<String> = (0..60).map(|number| format!("event-{number}")).collect();
    let deliver = async |from: usize| {
        // Neighbours overlap, and one of them goes backwards.
        let mut ids: Vec<&str> = ids[from..from + 20].iter().map(String::as_str).collect();
        if from.is_multiple_of(20) {
            ids.reverse();
        }
        let work = async |tx: &mut Connection<T>, fresh: &[usize]| {
            for place in fresh {
                stage.affect(tx, ids[*place]).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        loop {
            match stage.inbox.run_batch(&ids, "group", work).await {
                Ok(_) => return,
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    join_all([0, 10, 20, 30, 40, 0, 10, 20, 30, 40].map(deliver)).await;
    for id in &ids {
        assert_eq!(stage.effects_of(id).await, 1, "{id}");
    }
    stage.end().await;
}

/// A new table has no statistics yet, and one group has all messages: only the key of the table leads to those of
/// the batch.
#[tokio::test]
async fn postgres_finds_messages_by_their_ids_without_statistics() {
    let Some(stage) = Stage::<OnPostgres>::new().await else { return };
    let table = format!("{}message", stage.prefix);
    stage.execute("ALTER TABLE {}message SET (autovacuum_enabled = false)").await;
    let ids: Vec<String> = (0..20_000).map(|number| format!("event-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let nothing = async |_: &mut sqlx::PgConnection, _: &[usize]| Ok::<_, sqlx::Error>(());
    for ids in ids.chunks(2_000) {
        stage.inbox.run_batch(ids, "billing", nothing).await.unwrap();
    }
    let explained = format!(
        "EXPLAIN SELECT 1 FROM {table} WHERE consumer_group = 'billing' AND token = 't' \
         AND status NOT IN ('SUCCESS', 'FAILED') AND event_id = ANY ('{{{batch}}}'::text[])",
        batch = ids[..100].join(",")
    );
    let plan: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(explained)).fetch_all(stage.inbox.pool()).await.unwrap();
    let by_id = plan.iter().any(|line| line.contains("Index Cond") && line.contains("event_id = ANY"));
    assert!(by_id, "{plan:#?}");
    stage.end().await;
}
