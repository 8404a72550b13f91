//! Processes that hold a lock: one that is killed, one that is frozen.

use std::time::Duration;

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    time::{Instant, timeout},
};

use crate::{
    process::Process,
    stage::{DELAY, LEASE, Stage},
    target::{PATIENCE, Target, on_each},
};

on_each! {
    a_killed_holder_frees_the_lock_within_its_lease,
    a_frozen_holder_is_fenced_by_its_token,
}

/// Writes as well as the token allows, as a store does that is fenced.
fn fenced_write(token: i64) -> String {
    format!(
        "UPDATE {{}}register SET value = {token}, fence = {token} WHERE name = 'one' AND fence <= {token}"
    )
}

/// Holds the lock, says so, and writes when it is told to.
pub(crate) async fn hold<T: Target>(stage: Stage<T>) {
    let guard = stage.locks.lock("one").await.unwrap();
    eprintln!("held {}", guard.token());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let is_lost = timeout(Duration::ZERO, guard.lost()).await.is_ok();
        let is_held = guard.is_held();
        stage.execute(&fenced_write(guard.token())).await;
        eprintln!("wrote, held {is_held}, lost {is_lost}");
    }
}

async fn a_killed_holder_frees_the_lock_within_its_lease<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let mut holder = Process::start(&stage, "hold");
    let token: i64 = holder.says("held ").await.parse().unwrap();
    let waiter = tokio::spawn({
        let locks = stage.locks.clone();
        async move { locks.lock("one").await.unwrap() }
    });
    stage.queued("one", 2).await;
    let killed = Instant::now();
    holder.child.kill().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(killed.elapsed() < LEASE + DELAY, "{:?}", killed.elapsed());
    assert!(guard.token() > token);
    guard.release().await.unwrap();
    stage.end().await;
}

async fn a_frozen_holder_is_fenced_by_its_token<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.execute("INSERT INTO {}register VALUES ('one', 0, 0)").await;
    let value = async || stage.number("SELECT value FROM {}register").await;
    let mut holder = Process::start(&stage, "hold");
    let token: i64 = holder.says("held ").await.parse().unwrap();
    holder.child.stdin.as_mut().unwrap().write_all(b"write\n").await.unwrap();
    assert_eq!(holder.says("wrote, ").await, "held true, lost false");
    assert_eq!(value().await, token);
    holder.send(Signal::STOP);
    let frozen = Instant::now();
    let guard = stage.locks.lock("one").await.unwrap();
    assert!(frozen.elapsed() < LEASE + DELAY, "{:?}", frozen.elapsed());
    stage.execute(&fenced_write(guard.token())).await;
    // It goes on where it stood, and knows that it is late; if it did not, its token would be refused.
    holder.child.stdin.as_mut().unwrap().write_all(b"write\n").await.unwrap();
    holder.send(Signal::CONT);
    assert_eq!(holder.says("wrote, ").await, "held false, lost true");
    assert_eq!(value().await, guard.token());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    stage.end().await;
}
