//! Handlers in the transaction of their completion.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;

use super::{
    call::within,
    claims::complete_claims,
    driver::{Driver, Value},
    release::resume_lanes,
    settle::complete,
    statements::{Statements, filled, safe},
    work::{Fence, begin_marked, move_marked_fence, take_mark},
};
use crate::{
    handler::{HandlerError, TransactionalBatchCall, guarded},
    instance::InstanceId,
    naming::with_names,
    record::{Record, RecordId},
    store::{
        Completed, ENDED, FenceRow, NESTED, StoreError, StoreSettings, Transacted, TransactionalRun, Work,
    },
};

/// What refuses the completions of a stale instance.
#[derive(Clone, Copy)]
enum Right {
    /// The counter of a fence row.
    Fence(FenceRow),
    /// The tokens of the claims of this owner.
    Claims(InstanceId),
}

/// Runs a transactional handler on connections from the pool of the user.
pub(crate) struct SqlTransactional<D: Driver> {
    pool: D::Pool,
    settings: StoreSettings,
    sql: Arc<Statements>,
    /// Whether the server may keep named statements of the pool's connections.
    named: bool,
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
        let one = [("{ids}", D::DIALECT.parameter(1)), ("{attempts}", D::DIALECT.parameter(2))];
        let complete_one = complete_one.into_iter().map(|sql| filled(sql, &one).into()).collect();
        let named = D::may_name(&pool);
        Self { pool, settings, sql, named, complete_one, call }
    }

    async fn open(&self) -> Result<D::Lent, StoreError> {
        within::<D, _>("begin", self.settings.call_timeout, async {
            let mut conn = D::lend(&self.pool).await?;
            begin_marked::<D>(&mut conn).await?;
            Ok(conn)
        })
        .await
    }

    /// Rolls back after a failure that the handler has returned. The connection is then clean and goes back
    /// to the pool.
    async fn take_back(&self, mut conn: D::Lent) {
        let limit = self.settings.call_timeout;
        // If the handler has left an inner transaction open, the rollback would end only that one: the
        // connection is closed.
        let rolled_back = within::<D, _>("rollback", limit, async {
            let outermost = D::depth(&mut conn).await? == 1;
            if outermost {
                D::roll_back_work(&mut conn).await?;
            }
            Ok(outermost)
        });
        if rolled_back.await.unwrap_or(false) {
            D::return_connection(conn);
        }
    }

    /// Writes the fence row and the completions, directly before the commit so that the fence row is locked
    /// briefly. If a record is not as expected, another owner has settled it.
    async fn complete(
        &self,
        conn: &mut D::Connection,
        fence: FenceRow,
        work: &Work<'_>,
    ) -> Result<Fence, sqlx::Error> {
        let moved = move_marked_fence::<D>(conn, &self.sql.move_marked_fence, fence).await?;
        if moved != Fence::Moved {
            return Ok(moved);
        }
        let completed = match work.records {
            [record] => self.complete_one(conn, record).await?,
            _ => {
                let mut ids: BTreeMap<u32, Vec<RecordId>> = BTreeMap::new();
                for record in work.records {
                    ids.entry(record.failures()).or_default().push(record.delivery.id);
                }
                complete::<D>(conn, &self.sql, self.settings.completed, &ids).await?
            }
        };
        resume_lanes::<D>(conn, &self.sql, &work.stopping.iter().copied().collect()).await?;
        Ok(if completed == work.records.len() { Fence::Moved } else { Fence::Lost })
    }

    /// Writes the completions of claims, if each record is still claimed under its token.
    async fn complete_claims(
        &self,
        conn: &mut D::Connection,
        owner: InstanceId,
        work: &Work<'_>,
    ) -> Result<Fence, sqlx::Error> {
        if let Some(problem) = take_mark::<D>(conn).await? {
            return Ok(problem);
        }
        let mut ids: BTreeMap<i64, Vec<RecordId>> = BTreeMap::new();
        for record in work.records {
            ids.entry(record.delivery.generation.0).or_default().push(record.delivery.id);
        }
        let completed = complete_claims::<D>(conn, &self.sql, self.settings.completed, owner, &ids).await?;
        Ok(if completed as usize == work.records.len() { Fence::Moved } else { Fence::Lost })
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
    async fn run(&self, fence: FenceRow, work: &Work<'_>) -> Transacted {
        self.run_under(Right::Fence(fence), work).await
    }

    async fn run_claimed(&self, owner: InstanceId, work: &Work<'_>) -> Transacted {
        self.run_under(Right::Claims(owner), work).await
    }
}

impl<D: Driver> SqlTransactional<D> {
    async fn run_under(&self, right: Right, work: &Work<'_>) -> Transacted {
        let Work { records, states, timeout, may_start, .. } = *work;
        let mut conn = match self.open().await {
            Ok(conn) => conn,
            Err(error) => return Transacted::Aborted(error),
        };
        // Until the commit, dropping the connection rolls back the whole transaction.
        if !may_start() {
            self.take_back(conn).await;
            return Transacted::Untried;
        }
        match guarded(timeout, || self.call.call(records, states, &mut conn)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.take_back(conn).await;
                return Transacted::Failed(error);
            }
            Err(error) => return Transacted::Failed(error),
        }
        let limit = self.settings.call_timeout;
        let completing = with_names(self.named, async {
            match right {
                Right::Fence(fence) => self.complete(&mut conn, fence, work).await,
                Right::Claims(owner) => self.complete_claims(&mut conn, owner, work).await,
            }
        });
        match within::<D, _>("complete", limit, completing).await {
            Ok(Fence::Moved) => {}
            Ok(Fence::Lost) => return Transacted::Fenced,
            Ok(Fence::Ended) => return Transacted::Failed(HandlerError::permanent(ENDED)),
            Ok(Fence::Nested) => return Transacted::Failed(HandlerError::permanent(NESTED)),
            Err(error) => return Transacted::Aborted(error),
        }
        match within::<D, _>("commit", limit, D::commit_work(&mut conn)).await {
            Ok(()) => {
                D::return_connection(conn);
                Transacted::Committed
            }
            Err(error) => Transacted::Unknown(error),
        }
    }
}
