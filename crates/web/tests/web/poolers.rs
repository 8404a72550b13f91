//! The store in the database, behind a pooler that gives each transaction another session.

use http::StatusCode;
use keylane_web::{IdempotencyLayer, SqlStore};
use sqlx::{
    Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::task::JoinSet;
use tower::Layer;

use crate::{
    stage::{Calls, PATIENCE, counting, header, post, send},
    target::{self, url},
};

const CLIENTS: usize = 8;
const KEYS: usize = 40;

/// A pool as a user has it behind an old pooler, which loses named statements and refuses
/// `extra_float_digits` at the start.
fn pooled() -> sqlx::Pool<Postgres> {
    let options: PgConnectOptions = url("KEYLANE_TEST_PGBOUNCER_TRANSACTION_URL").parse().unwrap();
    let options = options.extra_float_digits(None).statement_cache_capacity(0);
    PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_work_through_a_pooler_that_keeps_no_sessions() {
    let (prefix, calls) = (target::prefix("tp"), Calls::default());
    let store =
        || SqlStore::builder(pooled()).table_prefix(prefix.as_str()).timeout(PATIENCE).build().unwrap();
    store().migrate().await.unwrap();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let layer = IdempotencyLayer::builder(store(), "orders").build().unwrap();
        let service = layer.layer(counting(&calls));
        clients.spawn(async move {
            for number in 0..KEYS {
                let key = format!("{client}-{number}");
                let answers = [send(&service, post(&key, "a")).await, send(&service, post(&key, "a")).await];
                assert_eq!(answers[0].status(), StatusCode::OK);
                let replayed =
                    answers.each_ref().map(|answer| header(answer, "idempotent-replayed").is_some());
                assert_eq!((replayed, answers[0].body()), ([false, true], answers[1].body()));
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    assert_eq!(calls.count(), CLIENTS * KEYS);
    target::end(&pooled(), &prefix, &["request", "meta"]).await;
}
