//! Handlers inside the transaction of their completion.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;

use super::{
    begin, commit,
    driver::{Driver, Value},
    rollback, safe,
    settle::{complete, move_guard, resume_lanes},
    statements::Statements,
    within,
};
use crate::{
    handler::{HandlerError, States, TransactionalBatchCall},
    record::{Record, RecordId},
    store::{Completed, Guard, StoreError, StoreSettings, Transacted, TransactionalRun},
};

/// Runs a transactional handler on connections out of the user's pool.
pub(crate) struct SqlTransactional<D: Driver> {
    pool: D::Pool,
    settings: StoreSettings,
    sql: Arc<Statements>,
    /// The statements that complete one record, prepared once.
    complete_one: Vec<Arc<str>>,
    call: Arc<dyn TransactionalBatchCall<D>>,
}

impl<D: Driver> SqlTransactional<D> {
    pub(crate) fn new(
        pool: D::Pool,
        settings: StoreSettings,
        call: Arc<dyn TransactionalBatchCall<D>>,
    ) -> Self {
        let sql = Arc::new(Statements::render(&D::DIALECT, D::FAMILY, &settings.tables));
        let complete_one = match settings.completed {
            Completed::Keep => vec![&sql.complete_keep],
            Completed::Delete => vec![&sql.complete_delete],
            Completed::Archive => vec![&sql.copy_to_archive, &sql.complete_delete],
        };
        let complete_one = complete_one.into_iter().map(|sql| D::DIALECT.of_one(sql)).collect();
        Self { pool, settings, sql, complete_one, call }
    }

    async fn open(&self) -> Result<D::Lent, StoreError> {
        within::<D, _>("begin", self.settings.call_timeout, async {
            let mut conn = D::lend(&self.pool).await?;
            begin::<D>(&mut conn).await?;
            Ok(conn)
        })
        .await
    }

    /// After a failure that the handler reported itself, the connection is clean once rolled back.
    async fn take_back(&self, mut conn: D::Lent) {
        let limit = self.settings.call_timeout;
        if within::<D, _>("rollback", limit, rollback::<D>(&mut conn)).await.is_ok() {
            D::give_back(conn);
        }
    }

    /// The fence and the completions, last before the commit so that the guard row is held briefly.
    async fn complete(
        &self,
        conn: &mut D::Connection,
        guard: Guard,
        records: &[&Record],
    ) -> Result<bool, sqlx::Error> {
        if !move_guard::<D>(conn, &self.sql.move_guard, guard).await? {
            return Ok(false);
        }
        let completed = match records {
            [record] => self.complete_one(conn, record).await?,
            _ => {
                let mut ids: BTreeMap<u32, Vec<RecordId>> = BTreeMap::new();
                for record in records {
                    ids.entry(record.failures()).or_default().push(record.delivery.id);
                }
                complete::<D>(conn, &self.sql, self.settings.completed, &ids).await?
            }
        };
        let failed = records.iter().filter(|record| record.failures() > 0);
        resume_lanes::<D>(conn, &self.sql, &failed.map(|record| record.delivery.id).collect()).await?;
        Ok(completed == records.len())
    }

    async fn complete_one(&self, conn: &mut D::Connection, record: &Record) -> Result<usize, sqlx::Error> {
        let mut completed = 0;
        for sql in &self.complete_one {
            let values = vec![Value::Int(record.delivery.id), Value::Int(i64::from(record.failures()))];
            completed = D::execute(conn, safe(sql), values).await?;
        }
        Ok(completed as usize)
    }
}

#[async_trait]
impl<D: Driver> TransactionalRun for SqlTransactional<D> {
    async fn run(&self, guard: Guard, records: &[&Record], states: &States, timeout: Duration) -> Transacted {
        let mut conn = match self.open().await {
            Ok(conn) => conn,
            Err(error) => return Transacted::Aborted(error),
        };
        // Until the commit, dropping the connection takes everything back.
        let handled = AssertUnwindSafe(self.call.call(records, states, &mut conn)).catch_unwind();
        match tokio::time::timeout(timeout, handled).await {
            Err(_) => return Transacted::Failed(HandlerError::timed_out(timeout)),
            Ok(Err(panic)) => return Transacted::Failed(HandlerError::panicked(&*panic)),
            Ok(Ok(Err(error))) => {
                self.take_back(conn).await;
                return Transacted::Failed(error);
            }
            Ok(Ok(Ok(()))) => {}
        }
        let limit = self.settings.call_timeout;
        match within::<D, _>("complete", limit, self.complete(&mut conn, guard, records)).await {
            Ok(true) => {}
            Ok(false) => return Transacted::Fenced,
            Err(error) => return Transacted::Aborted(error),
        }
        match within::<D, _>("commit", limit, commit::<D>(&mut conn)).await {
            Ok(()) => {
                D::give_back(conn);
                Transacted::Committed
            }
            Err(error) => Transacted::Unknown(error),
        }
    }
}
