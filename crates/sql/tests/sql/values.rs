//! What is written comes back as it was, and the tables are made by many at once.

use std::time::Duration;

use keylane_sql::{Family, Kind, Placement, Schema, SqlDatabase, Tables, Value};
use sqlx::Pool;

use crate::target::{CONNECTIONS, Target, end, execute, on_each, prefix};

on_each!(values_come_back_as_they_were, times_are_the_databases, tables_are_made_by_many_at_once);

const KINDS: &[Kind] = &[Kind::Int, Kind::Text, Kind::Text, Kind::Bytes];

/// Runs a statement on the tables.
async fn run<DB: SqlDatabase>(pool: &Pool<DB>, tables: &Tables, sql: &str, values: Vec<Value>) -> u64 {
    let mut conn = pool.acquire().await.unwrap();
    DB::execute(&mut conn, &DB::DIALECT.render(sql, tables), values, true).await.unwrap().rows
}

async fn values_come_back_as_they_were<T: Target>() {
    let prefix = prefix("tv");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    let tables = Placement::of("test").prefix(&prefix).tables().unwrap();
    let (exact, bytes) = match T::Db::DIALECT.family {
        Family::Postgres => ("TEXT COLLATE \"C\"", "BYTEA"),
        Family::MySql => ("VARBINARY(20)", "BLOB"),
        Family::Sqlite => ("TEXT", "BLOB"),
    };
    let columns = format!("name {exact} PRIMARY KEY, number BIGINT, words VARCHAR(200), body {bytes}");
    run(&pool, &tables, &format!("CREATE TABLE {{test}}value ({columns})"), Vec::new()).await;
    let body = vec![0, 255, b'\'', 0xc3];
    let all = ["a", "A", "a ", "ü';--"];
    for (number, name) in all.iter().enumerate() {
        let values = vec![
            Value::Exact((*name).to_owned()),
            Value::Int(i64::MIN + number as i64),
            Value::Text(format!("{name} $1 ? {{now}}")),
            Value::Bytes(body.clone()),
        ];
        let insert = "INSERT INTO {test}value (name, number, words, body) VALUES ($1, $2, $3, $4)";
        assert_eq!(run(&pool, &tables, insert, values).await, 1);
    }
    run(&pool, &tables, "INSERT INTO {test}value (name) VALUES ($1)", vec![Value::Exact("null".into())])
        .await;

    let read = async |sql: &str, list: Value| {
        let sql = T::Db::DIALECT.render(sql, &tables);
        let mut conn = pool.acquire().await.unwrap();
        T::Db::query(&mut conn, &sql, vec![list], KINDS, true).await.unwrap()
    };
    let by_name = "SELECT number, name, words, body FROM {test}value WHERE name {in:$1} ORDER BY number";
    let names = |names: &[&str]| Value::Exacts(names.iter().map(|name| (*name).to_owned()).collect());
    for length in [1, 4, 2] {
        let rows = read(by_name, names(&all[..length])).await;
        assert_eq!(rows.len(), length);
        for (number, mut row) in rows.into_iter().enumerate() {
            assert_eq!(row.int(0), Some(i64::MIN + number as i64));
            assert_eq!(row.text(1), all[number]);
            assert_eq!(row.take_text(2), format!("{} $1 ? {{now}}", all[number]));
            assert_eq!(row.take_bytes(3), Some(body.clone()));
        }
    }
    let by_words = by_name.replace("name {in:$1}", "words {in:$1}");
    let words = Value::Texts(vec!["ü';-- $1 ? {now}".to_owned(), "nobody's".to_owned()]);
    assert_eq!(read(&by_words, words).await.len(), 1);
    let mut rows = read(by_name, names(&["null"])).await;
    let row = &mut rows[0];
    assert_eq!((row.int(0), row.count(0), row.millis(0)), (None, 0, Duration::ZERO));
    assert_eq!((row.take_text(2), row.take_bytes(3), row.int(99)), (String::new(), None, None));
    end(&pool, &prefix, &["value"]).await;
}

async fn times_are_the_databases<T: Target>() {
    let prefix = prefix("tt");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    let tables = Placement::of("test").prefix(&prefix).tables().unwrap();
    let time = match T::Db::DIALECT.family {
        Family::Postgres => "TIMESTAMPTZ",
        Family::MySql => "DATETIME(6)",
        Family::Sqlite => "INTEGER",
    };
    run(&pool, &tables, &format!("CREATE TABLE {{test}}time (at {time}, made BIGINT)"), Vec::new()).await;
    let hour = || Value::millis(Duration::from_secs(3600));
    for time in ["{later:$1}", "{ago:$1}"] {
        let insert = format!("INSERT INTO {{test}}time (at, made) VALUES ({time}, {{micros}})");
        run(&pool, &tables, &insert, vec![hour()]).await;
    }
    assert_eq!(run(&pool, &tables, "DELETE FROM {test}time WHERE at < {now}", Vec::new()).await, 1);
    let sql = T::Db::DIALECT.render("SELECT {int:{left:at}}, {int:{micros} - made} FROM {test}time", &tables);
    let mut conn = pool.acquire().await.unwrap();
    let rows = T::Db::query(&mut conn, &sql, Vec::new(), &[Kind::Int, Kind::Int], true).await.unwrap();
    let (left, since) = (rows[0].millis(0), Duration::from_micros(rows[0].count(1)));
    assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3600), "{left:?}");
    assert!(since < Duration::from_secs(100), "{since:?}");
    drop(conn);
    assert_eq!(
        run(
            &pool,
            &tables,
            "DELETE FROM {test}time WHERE at < {later:$1}",
            vec![Value::millis(Duration::MAX)]
        )
        .await,
        1
    );
    end(&pool, &prefix, &["time"]).await;
}

async fn tables_are_made_by_many_at_once<T: Target>() {
    let prefix = prefix("ts");
    let Some(pool) = T::open(&prefix, "READ COMMITTED").await else { return };
    let tables = Placement::of("test").prefix(&prefix).tables().unwrap();
    let (insert, unless_there) = match T::Db::DIALECT.family {
        Family::MySql => ("INSERT IGNORE", ""),
        _ => ("INSERT", " ON CONFLICT DO NOTHING"),
    };
    let migration = format!(
        "CREATE TABLE IF NOT EXISTS {{test}}meta (schema_version BIGINT PRIMARY KEY); \
         {insert} INTO {{test}}meta VALUES (7){unless_there};"
    );
    let schema = Schema::new::<T::Db>(&migration, &tables, 77_316_530_230);
    assert_eq!(schema.version(&pool).await.unwrap(), 0);
    for _ in 0..10 {
        let mut made = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (schema, pool) = (schema.clone(), pool.clone());
            made.spawn(async move { schema.migrate(&pool).await });
        }
        while let Some(made) = made.join_next().await {
            made.unwrap().unwrap();
        }
        assert_eq!(schema.version(&pool).await.unwrap(), 7);
        execute(&pool, &prefix, "DROP TABLE {}meta").await.unwrap();
    }
    assert_eq!(schema.script(), migration.replace("{test}", &prefix));
    end(&pool, &prefix, &[]).await;
}
