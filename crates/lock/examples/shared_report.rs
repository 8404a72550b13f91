//! Three workers, one report: one writer at a time, in the order of arrival. The first is cut off from the database
//! while it holds the lock; what it writes too late is refused by its fencing token.
//!
//! `cargo run --package keylane-lock --example shared_report`

#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, time::Duration};

use keylane_lock::{LockClient, LockGuard};
use sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("keylane-shared-report-{}.db", std::process::id()));
    let shown = show(&file).await;
    std::fs::remove_file(&file)?;
    shown
}

async fn show(file: &Path) -> Result<(), Box<dyn Error>> {
    let pool = open(file).await?;
    let table = "CREATE TABLE report (id INTEGER PRIMARY KEY, author TEXT NOT NULL, fence INTEGER NOT NULL)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("INSERT INTO report VALUES (1, 'nobody', 0)").execute(&pool).await?;
    let (ann, bob, cid) = (worker(file).await?, worker(file).await?, worker(file).await?);
    ann.migrate().await?;

    let anns = ann.lock("report").await?;
    println!("ann holds the lock: {}", write(&pool, "ann", &anns).await?);
    let bobs = tokio::spawn(async move { bob.lock("report").await });
    queued(&ann, 2).await?;
    let cids = tokio::spawn(async move { cid.lock("report").await });
    queued(&ann, 3).await?;

    // Its renewals do not arrive any more.
    ann.pool().close().await;
    anns.lost().await;
    println!("ann is cut off, and has been told: held = {}", anns.is_held());
    let bobs = bobs.await??;
    println!("bob was next: {}", write(&pool, "bob", &bobs).await?);
    println!("ann comes too late: {}", write(&pool, "ann", &anns).await?);
    println!("ann releases: {}", if anns.release().await.is_err() { "refused" } else { "done" });
    bobs.release().await?;
    let cids = cids.await??;
    println!("cid was last: {}", write(&pool, "cid", &cids).await?);
    cids.release().await?;
    Ok(())
}

async fn open(file: &Path) -> Result<SqlitePool, sqlx::Error> {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(file).create_if_missing(true)).await
}

/// A client as each process has one, with the shortest lease.
async fn worker(file: &Path) -> Result<LockClient<Sqlite>, Box<dyn Error>> {
    Ok(LockClient::builder(open(file).await?).lease(Duration::from_secs(1)).build()?)
}

/// Writes unless a later holder has written.
async fn write(
    pool: &SqlitePool,
    author: &str,
    guard: &LockGuard<Sqlite>,
) -> Result<&'static str, sqlx::Error> {
    let write = sqlx::query("UPDATE report SET author = $1, fence = $2 WHERE id = 1 AND fence <= $2");
    let written = write.bind(author).bind(guard.token()).execute(pool).await?;
    Ok(if written.rows_affected() == 1 { "written" } else { "refused" })
}

async fn queued(locks: &LockClient<Sqlite>, wanted: usize) -> Result<(), Box<dyn Error>> {
    while locks.queue("report").await?.len() < wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
