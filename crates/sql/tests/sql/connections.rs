//! Connections that are lent: given back clean, or closed.

use keylane_sql::{Lent, SqlDatabase};
use sqlx::Connection;

use crate::target::{Target, end, execute, number, on_each, prefix};

on_each!(a_connection_is_given_back_clean_or_closed);

async fn a_connection_is_given_back_clean_or_closed<T: Target>() {
    let prefix = prefix("tc");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    execute(&pool, &prefix, "CREATE TABLE {}row (id BIGINT)").await.unwrap();
    let insert = format!("INSERT INTO {prefix}row VALUES (1)");
    let rows = async || number(&pool, &prefix, "SELECT count(*) FROM {}row").await;
    let begin = async || {
        let mut lent = Lent::<T::Db>::begin(&pool, T::Db::DIALECT.begin).await.unwrap();
        assert_eq!(lent.depth(), 1);
        T::Db::script(lent.conn(), &insert).await.unwrap();
        lent
    };
    // Connections that the pool has lost since.
    let lost = |size: u32| size - pool.size();
    let lent = begin().await;
    let size = pool.size();
    lent.commit().await.unwrap();
    assert_eq!((lost(size), rows().await), (0, 1));
    let lent = begin().await;
    let size = pool.size();
    lent.roll_back().await;
    assert_eq!((lost(size), rows().await), (0, 1));
    let lent = begin().await;
    let size = pool.size();
    drop(lent);
    assert_eq!((lost(size), rows().await), (1, 1), "what was cut off is closed");
    // A transaction within ours was left open.
    let mut lent = begin().await;
    std::mem::forget(lent.conn().begin().await.unwrap());
    assert_eq!(lent.depth(), 2);
    let size = pool.size();
    lent.roll_back().await;
    assert_eq!((lost(size), rows().await), (1, 1), "what is not clean is closed");
    // Without names on the server, each call is a transaction.
    for (named, depth) in [(true, 0), (false, 1)] {
        let mut lent = Lent::<T::Db>::from(&pool, named).await.unwrap();
        assert_eq!(lent.depth(), depth);
        T::Db::script(lent.conn(), &insert).await.unwrap();
        lent.commit().await.unwrap();
    }
    assert_eq!(rows().await, 3);
    end(&pool, &prefix, &["row"]).await;
}
