//! The user's side of a database: transactions and business rows.

use std::{future::Future, ops::DerefMut};

use keylane::{inner::Tables, memory::MemoryTransaction};
use sqlx::{AssertSqlSafe, Row};

use crate::target::{
    Connection, MariaDbTarget, MemoryTarget, MySqlTarget, Pool, PostgresTarget, SqliteTarget, Target,
};

/// A store as its user sees it.
pub(crate) trait User: Target {
    /// A transaction of the user, from the user's pool.
    type Work: DerefMut<Target = Connection<Self>> + Send;

    fn begin(pool: &Pool<Self>) -> impl Future<Output = Self::Work> + Send;
    fn commit(work: Self::Work) -> impl Future<Output = ()> + Send;
    fn rollback(work: Self::Work) -> impl Future<Output = ()> + Send;

    /// Creates the business table of the test.
    fn make_effects(pool: &Pool<Self>, tables: &Tables) -> impl Future<Output = ()> + Send;
    /// Writes a business row in a transaction.
    fn write_effect(
        conn: &mut Connection<Self>,
        tables: &Tables,
        text: &str,
    ) -> impl Future<Output = ()> + Send;
    /// All committed business rows, sorted.
    fn effects(pool: &Pool<Self>, tables: &Tables) -> impl Future<Output = Vec<String>> + Send;
}

/// The text before a table's own name: `schema.prefix`.
pub(crate) fn qualifier(tables: &Tables) -> String {
    tables.schema().map_or_else(String::new, |schema| format!("{schema}.")) + tables.prefix()
}

/// The end of a transaction within a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Commit,
    Rollback,
    Drop,
    Forget,
}

/// A store whose connections can begin a transaction within a transaction.
pub(crate) trait Nesting: User {
    /// Writes a business row in an inner transaction on the connection.
    fn write_within(
        conn: &mut Connection<Self>,
        tables: &Tables,
        text: &str,
        end: End,
    ) -> impl Future<Output = ()> + Send;
}

macro_rules! sql_user {
    ($($target:ty: $database:ty),* $(,)?) => {$(
        impl User for $target {
            type Work = sqlx::Transaction<'static, $database>;

            async fn begin(pool: &Pool<Self>) -> Self::Work {
                pool.begin().await.unwrap()
            }

            async fn commit(work: Self::Work) {
                work.commit().await.unwrap();
            }

            async fn rollback(work: Self::Work) {
                work.rollback().await.unwrap();
            }

            async fn make_effects(pool: &Pool<Self>, tables: &Tables) {
                let sql = format!("CREATE TABLE {}effect (what VARCHAR(200) NOT NULL)", qualifier(tables));
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
            }

            async fn write_effect(conn: &mut Connection<Self>, tables: &Tables, text: &str) {
                let sql = format!("INSERT INTO {}effect (what) VALUES ('{text}')", qualifier(tables));
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.unwrap();
            }

            async fn effects(pool: &Pool<Self>, tables: &Tables) -> Vec<String> {
                let sql = format!("SELECT what FROM {}effect ORDER BY what", qualifier(tables));
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }

        impl Nesting for $target {
            async fn write_within(conn: &mut Connection<Self>, tables: &Tables, text: &str, end: End) {
                let mut within = sqlx::Connection::begin(conn).await.unwrap();
                Self::write_effect(&mut within, tables, text).await;
                match end {
                    End::Commit => within.commit().await.unwrap(),
                    End::Rollback => within.rollback().await.unwrap(),
                    End::Drop => drop(within),
                    End::Forget => std::mem::forget(within),
                }
            }
        }
    )*};
}

sql_user! {
    PostgresTarget: sqlx::Postgres,
    MariaDbTarget: sqlx::MySql,
    MySqlTarget: sqlx::MySql,
    SqliteTarget: sqlx::Sqlite,
}

impl User for MemoryTarget {
    type Work = MemoryTransaction;

    async fn begin(pool: &Pool<Self>) -> MemoryTransaction {
        pool.begin().await.unwrap()
    }

    async fn commit(work: MemoryTransaction) {
        work.commit().await.unwrap();
    }

    async fn rollback(work: MemoryTransaction) {
        work.rollback().await.unwrap();
    }

    async fn make_effects(_: &Pool<Self>, _: &Tables) {}

    async fn write_effect(conn: &mut Connection<Self>, _: &Tables, text: &str) {
        conn.push_effect(text);
    }

    async fn effects(pool: &Pool<Self>, _: &Tables) -> Vec<String> {
        let mut effects = pool.effects();
        effects.sort();
        effects
    }
}

impl Nesting for MemoryTarget {
    async fn write_within(conn: &mut Connection<Self>, tables: &Tables, text: &str, end: End) {
        let mut within = conn.begin().await.unwrap();
        Self::write_effect(&mut within, tables, text).await;
        match end {
            End::Commit => within.commit().await.unwrap(),
            End::Rollback => within.rollback().await.unwrap(),
            End::Drop => drop(within),
            End::Forget => std::mem::forget(within),
        }
    }
}
