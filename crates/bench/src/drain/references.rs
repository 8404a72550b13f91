//! Consumers written by hand, as an expert would without a library.
//!
//! They do the work of the library: the same tables, columns and durability, order per key, and each record is handled
//! before it is deleted. They have no retries. Except for [`singly`], each must be the only process.

use std::{hint::black_box, sync::Arc};

use tokio::task::JoinSet;

use super::{
    Result,
    engine::{Engine, Session},
    tally::Tally,
};

/// Records per fetch of the loops.
const BATCH: i64 = 500;
/// Records per fetch of [`overlapping`]: 1,000 are slower by a quarter, and 10,000 are no faster.
const LARGE_BATCH: i64 = 5_000;

/// Fetch 500, handle, delete them in one statement.
pub(in super::super) async fn in_batches<E: Engine>(pool: &E::Pool, tally: &Tally) -> Result<()> {
    let mut conn = connect::<E>(pool, Session::Relaxed).await?;
    while !tally.is_complete() {
        let rows = E::fetch(&mut conn, &[], BATCH).await?;
        let ids = handle::<E>(&rows, tally)?;
        E::delete(&mut conn, &ids).await?;
    }
    Ok(())
}

/// The fastest correct loop: the next fetch is under way while the last one is handled and deleted on another
/// connection. A fetch begins at the head and leaves out the records in flight, so it finds a record that commits late.
/// It reads in the order of ids, because neighbours lie on the same pages: partition by partition has a quarter of the
/// rate on PostgreSQL.
pub(super) async fn overlapping<E: Engine>(pool: &E::Pool, tally: &Tally) -> Result<()> {
    let mut reader = connect::<E>(pool, Session::Pinned).await?;
    let mut writer = connect::<E>(pool, Session::Pinned).await?;
    let mut rows = E::fetch(&mut reader, &[], LARGE_BATCH).await?;
    while !rows.is_empty() {
        let ids = rows.iter().map(E::id).collect::<Result<Vec<i64>>>()?;
        let settle = async {
            handle::<E>(&rows, tally)?;
            E::delete(&mut writer, &ids).await
        };
        // The fetch is sent before the handler takes the processor.
        let (next, ()) = tokio::try_join!(biased; E::fetch(&mut reader, &ids, LARGE_BATCH), settle)?;
        rows = next;
    }
    Ok(())
}

/// What most outboxes do: one transaction per record, on several connections.
pub(super) async fn singly<E: Engine>(pool: &E::Pool, tally: &Arc<Tally>, connections: usize) -> Result<()> {
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        let (pool, tally) = (pool.clone(), Arc::clone(tally));
        workers.spawn(async move {
            let mut conn = connect::<E>(&pool, Session::Plain).await?;
            loop {
                E::execute(&mut conn, E::BEGIN).await?;
                let row = E::claim(&mut conn).await?;
                if let Some(row) = &row {
                    let ids = handle::<E>(std::slice::from_ref(row), &tally)?;
                    E::delete(&mut conn, &ids).await?;
                }
                E::execute(&mut conn, "COMMIT").await?;
                if row.is_none() {
                    return Result::Ok(());
                }
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// Fetch 500, write the effect of each, and delete them, in one transaction.
pub(super) async fn in_transactions<E: Engine>(pool: &E::Pool, tally: &Tally) -> Result<()> {
    let mut conn = connect::<E>(pool, Session::Plain).await?;
    while !tally.is_complete() {
        E::execute(&mut conn, E::BEGIN).await?;
        let rows = E::fetch(&mut conn, &[], BATCH).await?;
        for row in &rows {
            E::add_effect(&mut conn, &E::receive(row)?.key).await?;
        }
        let ids = handle::<E>(&rows, tally)?;
        E::delete(&mut conn, &ids).await?;
        E::execute(&mut conn, "COMMIT").await?;
    }
    Ok(())
}

async fn connect<E: Engine>(pool: &E::Pool, session: Session) -> Result<E::Connection> {
    let mut conn = E::connect(pool).await?;
    E::execute(&mut conn, E::session(session)).await?;
    Ok(conn)
}

/// Handles the records in order. Returns their ids.
fn handle<E: Engine>(rows: &[E::Row], tally: &Tally) -> Result<Vec<i64>> {
    let handled = rows.iter().map(|row| {
        let received = E::receive(row)?;
        black_box((received.event_id, received.key));
        tally.handle(received.id, received.event);
        Ok(received.id)
    });
    handled.collect()
}
