//! The loop that an expert would write: select, update and read a batch in one transaction, handle it, delete it.

use std::{
    error::Error,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use super::super::{
    Result,
    engine::{COLUMNS, Engine, Session},
    tally::Tally,
};

/// The pause of a loop that has found nothing, because others hold what is left.
const PAUSE: Duration = Duration::from_millis(1);

/// Drains on one connection until it is told to stop.
pub(super) async fn drain<E: Engine>(
    pool: &E::Pool,
    tally: &Tally,
    batch: usize,
    stop: &AtomicBool,
) -> Result<()> {
    let mut conn = E::connect(pool).await?;
    E::execute(&mut conn, E::session(Session::Pinned)).await?;
    let owner = format!("loop-{}", std::process::id());
    while !stop.load(Relaxed) {
        let rows = match claim::<E>(&mut conn, &owner, batch).await {
            Ok(rows) => rows,
            // Two claims can wait for each other on InnoDB: SKIP LOCKED keeps the lock of an index entry whose row it
            // skips.
            Err(error) if is_deadlock(&*error) => {
                E::execute(&mut conn, "ROLLBACK").await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        if rows.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let received = E::receive(row)?;
            black_box((received.event_id, received.key));
            tally.handle(received.id, received.event);
            ids.push(received.id);
        }
        let delete = format!(
            "DELETE FROM keylane_bench_record WHERE id IN ({}) AND lock_owner = '{owner}'",
            list(&ids)
        );
        while let Err(error) = E::execute(&mut conn, delete.clone()).await {
            if !is_deadlock(&*error) {
                return Err(error);
            }
        }
        tally.settle(ids.len());
    }
    Ok(())
}

/// The three steps in one transaction.
async fn claim<E: Engine>(conn: &mut E::Connection, owner: &str, batch: usize) -> Result<Vec<E::Row>> {
    E::execute(conn, E::BEGIN).await?;
    let select = format!(
        "SELECT id FROM keylane_bench_record WHERE status = 0 ORDER BY id LIMIT {batch} {}",
        E::SKIP_LOCKED
    );
    let ids = E::numbers(conn, select).await?;
    let mut rows = Vec::new();
    if !ids.is_empty() {
        let ids = list(&ids);
        let update = format!(
            "UPDATE keylane_bench_record SET status = 4, next_attempt_at = {}, lock_owner = '{owner}', \
             lock_token = COALESCE(lock_token, 0) + 1 WHERE id IN ({ids}) AND status = 0",
            E::IN_HALF_A_MINUTE
        );
        E::execute(conn, update).await?;
        rows =
            E::rows(conn, format!("SELECT {COLUMNS} FROM keylane_bench_record WHERE id IN ({ids})")).await?;
    }
    E::execute(conn, "COMMIT").await?;
    Ok(rows)
}

/// Whether the database has ended the transaction so that another one can go on.
fn is_deadlock(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let Some(sqlx::Error::Database(error)) = error.downcast_ref() else { return false };
    matches!(error.code().as_deref(), Some("40001" | "40P01"))
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
