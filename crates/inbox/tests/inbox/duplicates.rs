//! The same message many times, at once and one after another.

use futures::future::join_all;
use keylane_inbox::{Once, OnceError};

use crate::{
    stage::Stage,
    target::{Target, on_each},
};

on_each!(
    each_effect_happens_once_under_both_levels,
    ids_differ_by_case_space_and_group,
    a_message_is_consumed_in_the_callers_transaction,
    tables_are_made_by_many_at_once,
);

/// Delivers again what the inbox says may be delivered again.
async fn deliver<T: Target>(stage: &Stage<T>, event_id: &str) -> Once<()> {
    loop {
        match stage.inbox.run(event_id, "group", async |tx| stage.affect(tx, event_id).await).await {
            Ok(once) => return once,
            Err(error) if error.is_retryable() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn each_effect_happens_once_under_both_levels<T: Target>() {
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let Some(stage) = Stage::<T>::with(level, |builder| builder).await else { return };
        let ids: Vec<String> = (0..12).map(|number| format!("event-{number}")).collect();
        // Each message three times at once, and then once more.
        let deliveries = ids.iter().flat_map(|id| [id, id, id]).map(|id| deliver(&stage, id));
        let outcomes = join_all(deliveries).await;
        assert_eq!(outcomes.iter().filter(|once| **once == Once::Done(())).count(), ids.len());
        for id in &ids {
            assert_eq!(deliver(&stage, id).await, Once::Seen);
            assert_eq!(stage.effects_of(id).await, 1, "{level}: {id}");
        }
        assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 1 AND cost_ms IS NOT NULL").await, 12);
        stage.end().await;
    }
}

async fn ids_differ_by_case_space_and_group<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let ids = ["event", "Event", "event ", "évent"];
    for group in ["group", "Group", "group "] {
        for id in ids {
            let once = stage.inbox.run(id, group, async |tx| stage.affect(tx, "all").await).await.unwrap();
            assert_eq!(once, Once::Done(()), "{id:?} of {group:?}");
        }
    }
    assert_eq!(stage.effects_of("all").await, 12);
    let long = "x".repeat(256);
    for (id, group) in [("", "group"), ("event", ""), (&*long, "group"), ("event", &*long), ("a\0b", "group")]
    {
        let refused = stage.inbox.run(id, group, async |_| Ok::<_, sqlx::Error>(())).await;
        assert!(matches!(refused, Err(OnceError::Inbox(_))), "{id:?} of {group:?}");
    }
    stage.end().await;
}

async fn a_message_is_consumed_in_the_callers_transaction<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let pool = stage.inbox.pool();
    let work = async |tx: &mut crate::target::Connection<T>| stage.affect(tx, "event").await;

    let mut tx = pool.begin().await.unwrap();
    assert_eq!(stage.inbox.once(&mut tx, "event", "group", work).await.unwrap(), Once::Done(()));
    assert_eq!(stage.inbox.once(&mut tx, "event", "group", work).await.unwrap(), Once::Seen);
    tx.rollback().await.unwrap();
    assert_eq!((stage.effects_of("event").await, stage.messages("1 = 1").await), (0, 0));

    let mut tx = pool.begin().await.unwrap();
    assert_eq!(stage.inbox.once(&mut tx, "event", "group", work).await.unwrap(), Once::Done(()));
    tx.commit().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(stage.inbox.once(&mut tx, "event", "group", work).await.unwrap(), Once::Seen);
    drop(tx);
    assert_eq!((stage.effects_of("event").await, stage.messages("status = 'SUCCESS'").await), (1, 1));

    let mut conn = pool.acquire().await.unwrap();
    let refused = stage.inbox.once(&mut conn, "other", "group", work).await;
    assert!(matches!(refused, Err(OnceError::NoTransaction)), "{refused:?}");
    drop(conn);
    stage.end().await;
}

async fn tables_are_made_by_many_at_once<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.execute("DROP TABLE {}message; DROP TABLE {}meta").await;
    assert!(stage.inbox.check().await.unwrap_err().to_string().contains("Inbox::migrate"));
    for made in join_all((0..4).map(|_| stage.inbox.migrate())).await {
        made.unwrap();
    }
    stage.inbox.check().await.unwrap();
    stage.execute("UPDATE {}meta SET schema_version = 2").await;
    let error = stage.inbox.migrate().await.unwrap_err().to_string();
    assert!(error.contains("version 2, but this build needs 1"), "{error}");
    stage.end().await;
}
