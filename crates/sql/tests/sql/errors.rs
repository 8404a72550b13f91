//! Which errors a repetition may help with, and what they print.

use keylane_sql::{Kind, Lent, Placement, SqlDatabase, SqlError, Value, by_family};

use crate::target::{Target, end, execute, impatient, on_each, prefix};

on_each! {
    what_passes_is_retryable_and_what_is_refused_is_not,
    no_error_prints_a_value,
}

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

async fn no_error_prints_a_value<T: Target>() {
    let prefix = prefix("tq");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    execute(&pool, &prefix, "CREATE TABLE {}row (name VARCHAR(20) PRIMARY KEY, number BIGINT)")
        .await
        .unwrap();
    let mut conn = pool.acquire().await.unwrap().detach();
    let mut printed = Vec::new();
    let tables = Placement::of("test").prefix(&prefix).tables().unwrap();
    let insert = T::Db::DIALECT.render("INSERT INTO {test}row (name) VALUES ($1)", &tables);
    let name = || vec![Value::Text("secret".to_owned())];
    T::Db::execute(&mut conn, &insert, name(), true).await.unwrap();
    let twice = T::Db::execute(&mut conn, &insert, name(), true).await.unwrap_err();
    printed.push((
        twice,
        by_family::<T::Db, _>("code 23505, constraint ", "code 1062, constraint ", "code 1555"),
    ));
    let odd = format!("UPDATE {prefix}row SET number = 'secret' + 1");
    if let Err(odd) = T::Db::execute(&mut conn, &odd, Vec::new(), true).await {
        printed.push((odd, by_family::<T::Db, _>("code 22P02", "code 1292", "")));
    }
    let column = format!("SELECT name FROM {prefix}row");
    if let Err(other) = T::Db::query(&mut conn, &column, Vec::new(), &[Kind::Int], true).await {
        printed.push((other, "column 0 could not be decoded"));
    }
    assert!(printed.len() >= by_family::<T::Db, _>(2, 2, 1), "{printed:?}");
    for (error, wanted) in printed {
        let error = SqlError::of::<T::Db>(error);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(wanted) && !shown.contains("secret"), "{shown}");
        assert!(std::error::Error::source(&error).is_none());
    }
    drop(conn);
    end(&pool, &prefix, &["row"]).await;
}
