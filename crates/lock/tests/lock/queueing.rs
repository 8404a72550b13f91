//! Places in the queue: given up by who is dropped or waits too long, lost by the dead, and kept otherwise.

use std::time::Duration;

use keylane_lock::LockError;
use tokio::time::{Instant, timeout};

use crate::{
    stage::{DELAY, LEASE, RENEWED, Stage},
    target::{PATIENCE, Target, on_each, past},
};

on_each!(
    a_wait_that_is_dropped_leaves_the_queue,
    a_wait_that_is_too_long_leaves_the_queue,
    waiters_that_have_died_are_passed_over,
    who_only_tries_does_not_wait_and_overtakes_nobody,
    resources_that_nobody_asks_for_are_purged,
);

async fn a_wait_that_is_dropped_leaves_the_queue<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", RENEWED).await else { return };
    let (other, third) = (stage.other().await, stage.other().await);
    let holder = stage.locks.lock("one").await.unwrap();
    let dropped = tokio::spawn(async move { other.locks.lock("one").await.map(drop) });
    stage.queued("one", 2).await;
    let last = tokio::spawn(async move { third.locks.lock("one").await.unwrap() });
    stage.queued("one", 3).await;
    dropped.abort();
    stage.queued("one", 2).await;
    // Dropped at any point: before the insert, after it, between the two.
    for micros in (0..20).map(|step| step * 400) {
        let lock = stage.locks.lock("one");
        assert!(timeout(Duration::from_micros(micros), lock).await.is_err());
    }
    stage.queued("one", 2).await;
    let began = Instant::now();
    holder.release().await.unwrap();
    let last = timeout(PATIENCE, last).await.unwrap().unwrap();
    assert!(began.elapsed() < RENEWED, "its place was that behind the holder");
    last.release().await.unwrap();
    stage.queued("one", 0).await;
    stage.end().await;
}

async fn a_wait_that_is_too_long_leaves_the_queue<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let holder = stage.locks.lock("one").await.unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(150)] {
        let began = Instant::now();
        let refused = stage.locks.request("one").timeout(wait).lock().await;
        assert!(matches!(&refused, Err(error @ LockError::TimedOut { .. }) if error.is_retryable()));
        assert!(began.elapsed() >= wait && began.elapsed() < wait + LEASE + DELAY);
        stage.queued("one", 1).await;
    }
    holder.release().await.unwrap();
    stage.end().await;
}

async fn waiters_that_have_died_are_passed_over<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let holder = stage.locks.lock("one").await.unwrap();
    // Three clients queue up and fall silent.
    let mut dead = Vec::new();
    for number in 0..3 {
        let client = stage.other().await;
        let locks = client.locks.clone();
        dead.push(tokio::spawn(async move { locks.lock("one").await.map(drop) }));
        stage.queued("one", number + 2).await;
        client.locks.pool().close().await;
    }
    let other = stage.other().await;
    let living = tokio::spawn(async move { other.locks.lock("one").await.unwrap() });
    stage.queued("one", 5).await;
    let began = Instant::now();
    holder.release().await.unwrap();
    let guard = timeout(PATIENCE, living).await.unwrap().unwrap();
    assert!(began.elapsed() < LEASE + DELAY, "{:?}", began.elapsed());
    stage.queued("one", 1).await;
    guard.release().await.unwrap();
    dead.iter().for_each(|task| task.abort());
    stage.end().await;
}

async fn resources_that_nobody_asks_for_are_purged<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let held = stage.locks.lock("held").await.unwrap();
    let mut tokens = Vec::new();
    for resource in ["old", "new"] {
        let guard = stage.locks.lock(resource).await.unwrap();
        tokens.push(guard.token());
        guard.release().await.unwrap();
    }
    let age = format!("UPDATE {{}}resource SET used_at = {} WHERE resource <> 'new'", past::<T::Db>());
    stage.execute(&age).await;
    assert_eq!(stage.locks.purge(Duration::from_secs(3600)).await.unwrap(), 1);
    assert_eq!(stage.number("SELECT count(*) FROM {}resource WHERE resource <> 'old'").await, 2);
    let again = stage.locks.lock("old").await.unwrap();
    assert!(again.token() > tokens[0], "tokens grow also after a purge");
    assert!(held.is_held());
    again.release().await.unwrap();
    held.release().await.unwrap();
    stage.end().await;
}

async fn who_only_tries_does_not_wait_and_overtakes_nobody<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let other = stage.other().await;
    let attempt = || stage.locks.request("one").try_lock();
    let holder = attempt().await.unwrap().unwrap();
    assert!(attempt().await.unwrap().is_none());
    stage.queued("one", 1).await;
    let waiter = tokio::spawn(async move { other.locks.lock("one").await.unwrap() });
    stage.queued("one", 2).await;
    holder.release().await.unwrap();
    // The waiter is first, whether it knows that by now or not.
    assert!(attempt().await.unwrap().is_none());
    timeout(PATIENCE, waiter).await.unwrap().unwrap().release().await.unwrap();
    // One that has died does not stand in the way. This one lives, so a renewal may come between.
    let dead = attempt().await.unwrap().unwrap();
    let expire =
        format!("UPDATE {{}}ticket SET expires_at = {} WHERE token = {}", past::<T::Db>(), dead.token());
    let taken = async {
        loop {
            stage.execute(&expire).await;
            if let Some(next) = attempt().await.unwrap() {
                return next;
            }
        }
    };
    let next = timeout(PATIENCE, taken).await.unwrap();
    assert!(next.token() > dead.token() && dead.release().await.is_err());
    next.release().await.unwrap();
    stage.end().await;
}
