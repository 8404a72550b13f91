//! The parts that are the same for each sqlx driver, as macros: sqlx's types differ only by name, and generic
//! code would have to repeat the bounds of its traits everywhere.

/// The methods of a driver that are the same for each database.
macro_rules! sqlx_driver {
    ($database:ty, $connection:ty) => {
        fn execute<'c>(
            conn: &'c mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
            values: Vec<crate::store::sql::driver::Value>,
        ) -> crate::store::sql::driver::DriverResult<'c, u64> {
            Box::pin(async move {
                let done = match values.is_empty() {
                    true => sqlx::raw_sql(sql).execute(conn).await?,
                    false => bind(sqlx::query::<$database>(sql), values).execute(conn).await?,
                };
                Ok(done.rows_affected())
            })
        }

        fn query<'c>(
            conn: &'c mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
            values: Vec<crate::store::sql::driver::Value>,
            kinds: &'static [crate::store::sql::driver::Kind],
        ) -> crate::store::sql::driver::DriverResult<'c, Vec<crate::store::sql::driver::Row>> {
            Box::pin(async move {
                let rows = bind(sqlx::query::<$database>(sql), values).fetch_all(conn).await?;
                rows.iter().map(|row| cells(row, kinds)).collect()
            })
        }

        fn query_text<'c>(
            conn: &'c mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
            kinds: &'static [crate::store::sql::driver::Kind],
        ) -> crate::store::sql::driver::DriverResult<'c, Vec<crate::store::sql::driver::Row>> {
            Box::pin(async move {
                let rows = sqlx::raw_sql(sql).fetch_all(conn).await?;
                rows.iter().map(|row| cells(row, kinds)).collect()
            })
        }

        fn read_claimed(
            conn: &mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
        ) -> crate::store::sql::driver::DriverResult<'_, Vec<std::sync::Arc<crate::record::Record>>> {
            Box::pin(async move {
                // The text differs each time. PostgreSQL sends times in the form that is read here only to a
                // query that was prepared; on MySQL, preparing would cost a round trip.
                let rows = match Self::FAMILY {
                    crate::store::sql::dialect::Family::Postgres => {
                        sqlx::query(sql).persistent(false).fetch_all(conn).await?
                    }
                    _ => sqlx::raw_sql(sql).fetch_all(conn).await?,
                };
                rows.iter().map(crate::store::sql::decode::claimed_record).collect()
            })
        }

        fn script<'c>(
            conn: &'c mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
        ) -> crate::store::sql::driver::DriverResult<'c, ()> {
            Box::pin(async move { sqlx::raw_sql(sql).execute(conn).await.map(|_| ()) })
        }

        fn begin_work<'c>(
            conn: &'c mut $connection,
            sql: sqlx::AssertSqlSafe<std::sync::Arc<str>>,
        ) -> crate::store::sql::driver::DriverResult<'c, ()> {
            use sqlx::SqlSafeStr;
            use sqlx_core::transaction::TransactionManager;
            Box::pin(<$database as sqlx::Database>::TransactionManager::begin(conn, Some(sql.into_sql_str())))
        }

        fn commit_work(conn: &mut $connection) -> crate::store::sql::driver::DriverResult<'_, ()> {
            use sqlx_core::transaction::TransactionManager;
            Box::pin(<$database as sqlx::Database>::TransactionManager::commit(conn))
        }

        fn roll_back_work(conn: &mut $connection) -> crate::store::sql::driver::DriverResult<'_, ()> {
            use sqlx_core::transaction::TransactionManager;
            Box::pin(<$database as sqlx::Database>::TransactionManager::rollback(conn))
        }

        fn depth(conn: &mut $connection) -> crate::store::sql::driver::DriverResult<'_, usize> {
            use sqlx_core::transaction::TransactionManager;
            Box::pin(async {
                // SQLite runs in a separate thread and counts the rollback later: the ping waits until it
                // has.
                if Self::FAMILY == crate::store::sql::dialect::Family::Sqlite {
                    sqlx::Connection::ping(&mut *conn).await?;
                }
                Ok(<$database as sqlx::Database>::TransactionManager::get_transaction_depth(conn))
            })
        }

        fn close(conn: $connection) -> crate::store::sql::driver::DriverResult<'static, ()> {
            Box::pin(sqlx::Connection::close(conn))
        }

        type Lent = crate::store::sql::link::Lent<$database>;

        fn lend(pool: &sqlx::Pool<$database>) -> crate::store::sql::driver::DriverResult<'_, Self::Lent> {
            Box::pin(async { pool.acquire().await.map(crate::store::sql::link::Lent::new) })
        }

        fn return_connection(lent: Self::Lent) {
            lent.keep();
        }

        fn migrate<'c>(
            conn: &'c mut $connection,
            migrator: &'c sqlx::migrate::Migrator,
        ) -> crate::handler::BoxFuture<'c, Result<(), sqlx::migrate::MigrateError>> {
            Box::pin(migrator.run_direct(None, conn, false))
        }
    };
}

/// The free functions beside [`sqlx_driver`], which need the row and argument types by name.
macro_rules! sqlx_codec {
    ($database:ty, $arguments:ty) => {
        type Row = <$database as sqlx::Database>::Row;

        fn bind<'q>(
            query: sqlx::query::Query<'q, $database, $arguments>,
            values: Vec<crate::store::sql::driver::Value>,
        ) -> sqlx::query::Query<'q, $database, $arguments> {
            values.into_iter().fold(query.persistent(crate::naming::are_given()), bind_one)
        }

        fn bind_one<'q>(
            query: sqlx::query::Query<'q, $database, $arguments>,
            value: crate::store::sql::driver::Value,
        ) -> sqlx::query::Query<'q, $database, $arguments> {
            use crate::store::sql::driver::Value;
            match value {
                Value::Int(number) => query.bind(number),
                Value::SmallInt(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Uuid(uuid) => query.bind(uuid),
                Value::Null => query.bind(None::<String>),
            }
        }

        fn get<'r, T>(row: &'r Row, column: usize) -> Result<Option<T>, sqlx::Error>
        where
            T: sqlx::Decode<'r, $database>,
        {
            sqlx::Row::try_get_unchecked::<Option<T>, _>(row, column)
        }

        fn cells(
            row: &Row,
            kinds: &[crate::store::sql::driver::Kind],
        ) -> Result<crate::store::sql::driver::Row, sqlx::Error> {
            use crate::store::sql::driver::{Cell, Kind};
            let mut cells = Vec::with_capacity(kinds.len());
            for (column, kind) in kinds.iter().enumerate() {
                cells.push(match kind {
                    Kind::Int => get::<i64>(row, column)?.map_or(Cell::Null, Cell::Int),
                    Kind::Text => get::<String>(row, column)?.map_or(Cell::Null, Cell::Text),
                    Kind::Bytes => get::<Vec<u8>>(row, column)?.map_or(Cell::Null, Cell::Bytes),
                    Kind::Uuid => get::<uuid::Uuid>(row, column)?.map_or(Cell::Null, Cell::Uuid),
                });
            }
            Ok(crate::store::sql::driver::Row(cells))
        }
    };
}

/// The public side of a database, the same for each sqlx driver.
macro_rules! sqlx_database {
    ($database:ty, $connection:ty, $name:literal, $check_pool:expr) => {
        impl crate::database::sealed::Sealed for $database {}
        impl crate::database::sealed::Sealed for sqlx::Pool<$database> {}
        impl crate::database::sealed::Sealed for $connection {}

        impl crate::database::Pool for sqlx::Pool<$database> {
            type Database = $database;
        }

        impl crate::database::SqlDatabase for $database {
            fn statements(
                producer: &Self::Producer,
                records: &[crate::record::NewRecord],
                dedup_key: Option<&str>,
                strict: bool,
            ) -> Result<Vec<crate::statement::Statement>, crate::store::StoreError> {
                crate::store::sql::statements_of::<$database>(producer, records, dedup_key, strict)
            }
        }

        impl crate::database::HasDatabase for $connection {
            type Database = $database;
        }

        impl crate::database::Database for $database {
            const NAME: &'static str = $name;
            type Pool = sqlx::Pool<$database>;
            type Connection = $connection;
            type Transaction = crate::store::sql::link::OpenTransaction<$database>;
            type Producer = crate::store::sql::Producer;

            fn producer(tables: &crate::store::Tables) -> Self::Producer {
                use crate::store::sql::{Producer, driver::Driver};
                Producer::new(&Self::DIALECT, Self::FAMILY, tables)
            }

            fn begin(
                pool: &Self::Pool,
            ) -> crate::handler::BoxFuture<'_, Result<Self::Transaction, crate::store::StoreError>> {
                Box::pin(async {
                    let begun = async {
                        let mut lent = <Self as crate::store::sql::driver::Driver>::lend(pool).await?;
                        crate::store::sql::work::begin::<$database>(&mut lent).await?;
                        Ok(crate::store::sql::link::OpenTransaction::on(lent))
                    };
                    begun.await.map_err(|error| crate::store::sql::store_error::<$database>("begin", error))
                })
            }

            fn commit(
                mut tx: Self::Transaction,
            ) -> crate::handler::BoxFuture<'static, Result<(), crate::store::StoreError>> {
                use crate::store::sql::{driver::Driver, store_error, work};
                Box::pin(async move {
                    work::check::<$database>(&mut tx).await?;
                    let committed = <$database as Driver>::commit_work(&mut tx).await;
                    committed.map_err(|error| store_error::<$database>("commit", error))?;
                    tx.keep();
                    Ok(())
                })
            }

            fn in_transaction(
                conn: &mut Self::Connection,
            ) -> crate::handler::BoxFuture<'_, Result<bool, crate::store::StoreError>> {
                Box::pin(async move {
                    let known = sqlx::Connection::is_in_transaction(conn);
                    let found = if known { Ok(true) } else { finds_transaction(conn).await };
                    found.map_err(|error| {
                        crate::store::sql::store_error::<$database>("find transaction", error)
                    })
                })
            }

            fn insert<'a>(
                conn: &'a mut Self::Connection,
                producer: &'a Self::Producer,
                records: &'a [crate::record::NewRecord],
            ) -> crate::handler::BoxFuture<'a, Result<(), crate::store::StoreError>> {
                Box::pin(crate::store::sql::insert::<$database>(conn, producer, records))
            }

            fn insert_dedup_key<'a>(
                conn: &'a mut Self::Connection,
                producer: &'a Self::Producer,
                dedup_key: &'a str,
            ) -> crate::handler::BoxFuture<'a, Result<bool, crate::store::StoreError>> {
                Box::pin(crate::store::sql::insert_dedup_key::<$database>(conn, producer, dedup_key))
            }

            fn lock_keys<'a>(
                conn: &'a mut Self::Connection,
                producer: &'a Self::Producer,
                keys: &'a [&'a str],
            ) -> crate::handler::BoxFuture<'a, Result<(), crate::store::StoreError>> {
                Box::pin(async move {
                    let locked = lock_keys(conn, producer, keys).await;
                    locked.map_err(|error| crate::store::sql::store_error::<$database>("lock keys", error))
                })
            }

            fn cancel<'a>(
                conn: &'a mut Self::Connection,
                producer: &'a Self::Producer,
                cancel: &'a crate::record::Cancel,
            ) -> crate::handler::BoxFuture<'a, Result<u64, crate::store::StoreError>> {
                Box::pin(async move {
                    let cancelled = cancel_records(conn, &producer.sql, cancel).await;
                    cancelled.map_err(|error| crate::store::sql::store_error::<$database>("cancel", error))
                })
            }

            fn pool_size(pool: &Self::Pool) -> Option<u32> {
                Some(pool.options().get_max_connections())
            }

            fn names_statements(pool: &Self::Pool) -> bool {
                <$database as crate::store::sql::driver::Driver>::may_name(pool)
            }

            fn open(
                pool: &Self::Pool,
                settings: crate::store::StoreSettings,
            ) -> Result<std::sync::Arc<dyn crate::store::Store>, crate::store::OpenError> {
                let check: fn(&Self::Pool) -> Result<(), crate::store::OpenError> = $check_pool;
                check(pool)?;
                Ok(std::sync::Arc::new(crate::store::sql::SqlStore::<$database>::new(pool.clone(), settings)))
            }

            fn transactional(
                pool: &Self::Pool,
                settings: &crate::store::StoreSettings,
                call: std::sync::Arc<dyn crate::handler::TransactionalBatchCall<Self>>,
            ) -> std::sync::Arc<dyn crate::store::TransactionalRun> {
                let settings = settings.clone();
                std::sync::Arc::new(crate::store::sql::SqlTransactional::new(pool.clone(), settings, call))
            }
        }
    };
}

pub(crate) use sqlx_codec;
pub(crate) use sqlx_database;
pub(crate) use sqlx_driver;
