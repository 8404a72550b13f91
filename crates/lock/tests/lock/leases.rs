//! Leases: renewed while the lock is held, and holders that are too late.

use std::{pin::pin, sync::mpsc, time::Duration};

use keylane_lock::LockError;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    stage::{DELAY, LEASE, RENEWED, Stage},
    target::{PATIENCE, Target, on_each, past},
};

on_each!(
    a_lock_is_renewed_while_it_is_held,
    a_holder_that_blocks_its_thread_keeps_its_lock,
    a_holder_learns_that_its_lock_is_lost_before_another_has_it,
    a_stale_holder_changes_nothing,
    a_waiter_that_has_lost_its_place_queues_up_again,
);

async fn a_lock_is_renewed_while_it_is_held<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", RENEWED).await else { return };
    let other = stage.other().await;
    let guard = stage.locks.lock("one").await.unwrap();
    let long = RENEWED * 2;
    let refused = other.locks.request("one").timeout(long).lock().await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    assert!(guard.is_held() && timeout(Duration::ZERO, guard.lost()).await.is_err());
    guard.release().await.unwrap();
    // Renewals have stopped with the guard, and begin again with the next one.
    sleep(RENEWED).await;
    let guard = stage.locks.lock("one").await.unwrap();
    sleep(RENEWED * 3 / 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    stage.end().await;
}

/// The thread of the holder may be the one that waited for the timers and sockets of the runtime.
async fn a_holder_that_blocks_its_thread_keeps_its_lock<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", RENEWED).await else { return };
    let locks = stage.locks.clone();
    let holder = tokio::spawn(async move {
        let guard = locks.lock("one").await.unwrap();
        sleep(Duration::from_millis(50)).await;
        let (open, silent) = mpsc::channel::<()>();
        let _ = silent.recv_timeout(RENEWED * 2);
        drop(open);
        assert!(guard.is_held());
        guard.release().await.unwrap();
    });
    holder.await.unwrap();
    stage.end().await;
}

async fn a_holder_learns_that_its_lock_is_lost_before_another_has_it<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let cut_off = stage.other().await;
    let guard = cut_off.locks.lock("one").await.unwrap();
    let waiter = tokio::spawn({
        let locks = stage.locks.clone();
        async move { (locks.lock("one").await.unwrap(), Instant::now()) }
    });
    stage.queued("one", 2).await;
    cut_off.locks.pool().close().await;
    let began = Instant::now();
    timeout(PATIENCE, guard.lost()).await.unwrap();
    let lost_at = Instant::now();
    assert!(!guard.is_held());
    let (next, got_at) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(lost_at < got_at, "told {:?} after another had it", lost_at - got_at);
    assert!(got_at - began < LEASE + DELAY, "{:?}", got_at - began);
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err());
    next.release().await.unwrap();
    stage.end().await;
}

async fn a_stale_holder_changes_nothing<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", RENEWED).await else { return };
    let other = stage.other().await;
    let stale = stage.locks.request("one").owner("job").lock().await.unwrap();
    let entered = stage.locks.request("one").owner("job").lock().await.unwrap();
    // As if its client had been frozen. Its trust by its own clock still lasts. It is not frozen, so a renewal may come
    // before the next holder does.
    let expire =
        format!("UPDATE {{}}ticket SET expires_at = {} WHERE token = {}", past::<T::Db>(), stale.token());
    let mut next = pin!(other.locks.lock("one"));
    let next = loop {
        stage.execute(&expire).await;
        if let Ok(next) = timeout(Duration::from_millis(100), &mut next).await {
            break next.unwrap();
        }
    };
    let again = stage.locks.request("one").owner("job").lock().await;
    assert!(matches!(again, Err(LockError::Lost { .. })), "{again:?}");
    assert!(!stale.is_held());
    timeout(Duration::from_secs(1), stale.lost()).await.unwrap();
    assert!(matches!(entered.release().await, Err(LockError::Lost { .. })));
    assert!(matches!(stale.release().await, Err(LockError::Lost { .. })));
    // Renewals of the stale client do not touch it, either.
    sleep(RENEWED).await;
    assert!(next.is_held());
    let queue = stage.locks.queue("one").await.unwrap();
    assert!(queue.len() == 1 && queue[0].token == next.token() && queue[0].entries == 1, "{queue:?}");
    next.release().await.unwrap();
    stage.end().await;
}

async fn a_waiter_that_has_lost_its_place_queues_up_again<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let holder = stage.locks.lock("one").await.unwrap();
    let other = stage.other().await;
    let waiter = tokio::spawn(async move { other.locks.lock("one").await.unwrap() });
    stage.queued("one", 2).await;
    stage.execute(&format!("DELETE FROM {{}}ticket WHERE token > {}", holder.token())).await;
    // A waiter that reads at this moment finds the ticket in the queue again.
    holder.release().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    stage.end().await;
}
