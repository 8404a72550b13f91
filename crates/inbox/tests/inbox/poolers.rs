//! Behind a pooler that gives each transaction another session.

use std::time::Duration;

use keylane_inbox::Inbox;
use sqlx::{
    Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::task::JoinSet;

use crate::target::{self, url};

/// A pool as a user has it behind an old pooler, which loses named statements and refuses
/// `extra_float_digits` at the start.
fn pooled() -> sqlx::Pool<Postgres> {
    let options: PgConnectOptions = url("KEYLANE_TEST_PGBOUNCER_TRANSACTION_URL").parse().unwrap();
    let options = options.extra_float_digits(None).statement_cache_capacity(0);
    PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
}

/// Each call is prepared and run on one session of the server, however many clients share the sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_through_a_pooler_that_keeps_no_sessions() {
    let prefix = target::prefix("tp");
    let inbox = Inbox::builder(pooled()).table_prefix(prefix.as_str()).build().unwrap();
    inbox.migrate().await.unwrap();
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let inbox = Inbox::builder(pooled()).table_prefix(prefix.as_str()).build().unwrap();
        clients.spawn(async move {
            for number in 0..40 {
                let event = format!("{client}-{number}");
                let claim = inbox.claim(&event, "group").await.unwrap().unwrap();
                claim.renew().await.unwrap();
                match number % 2 {
                    0 => claim.complete().await.unwrap(),
                    _ => claim.fail("away").await.unwrap(),
                }
                inbox.run(&event, "other", async |_| Ok::<_, sqlx::Error>(())).await.unwrap();
                inbox.overview().await.unwrap();
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let groups = inbox.overview().await.unwrap();
    let counts: Vec<_> = groups.iter().map(|group| (group.success, group.failed)).collect();
    assert_eq!(counts, [(160, 160), (320, 0)]);
    assert_eq!(inbox.purge(Duration::ZERO).await.unwrap(), 640);
    target::end(inbox.pool(), &prefix, &["message", "meta"]).await;
}
