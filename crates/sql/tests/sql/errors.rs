//! Which errors a repetition may help with.

use keylane_sql::{Lent, SqlDatabase};

use crate::target::{Target, end, execute, impatient, on_each, prefix};

on_each!(what_passes_is_retryable_and_what_is_refused_is_not);

async fn what_passes_is_retryable_and_what_is_refused_is_not<T: Target>() {
    let prefix = prefix("te");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    execute(&pool, &prefix, "CREATE TABLE {}row (id BIGINT PRIMARY KEY); INSERT INTO {}row VALUES (1)")
        .await
        .unwrap();
    let mut holder = Lent::<T::Db>::begin(&pool, T::Db::DIALECT.begin).await.unwrap();
    T::Db::script(holder.conn(), &format!("UPDATE {prefix}row SET id = 1")).await.unwrap();
    let mut conn = pool.acquire().await.unwrap().detach();
    T::Db::script(&mut conn, impatient::<T::Db>()).await.unwrap();
    let update = format!("UPDATE {prefix}row SET id = 1");
    let locked = T::Db::execute(&mut conn, &update, Vec::new(), true).await.unwrap_err();
    assert!(T::Db::is_retryable(&locked) && !T::Db::is_refusal(&locked), "{locked:?}");
    holder.roll_back().await;

    for refused in [format!("INSERT INTO {prefix}row VALUES (1)"), format!("DELETE FROM {prefix}nothing")] {
        let refused = T::Db::execute(&mut conn, &refused, Vec::new(), true).await.unwrap_err();
        assert!(!T::Db::is_retryable(&refused) && T::Db::is_refusal(&refused), "{refused:?}");
    }
    for (error, is_retryable) in [
        (sqlx::Error::PoolTimedOut, true),
        (sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into()), true),
        (sqlx::Error::PoolClosed, false),
        (sqlx::Error::RowNotFound, false),
    ] {
        assert_eq!(T::Db::is_retryable(&error), is_retryable, "{error:?}");
        assert!(!T::Db::is_refusal(&error), "{error:?}");
    }
    drop(conn);
    end(&pool, &prefix, &["row"]).await;
}
