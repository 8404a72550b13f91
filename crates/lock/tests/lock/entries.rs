//! Re-entry: an owner enters again, and each release takes one down.

use std::time::Duration;

use keylane_lock::LockError;

use tokio::time::timeout;

use crate::{
    stage::{LEASE, Stage},
    target::{Target, on_each},
};

on_each!(
    an_owner_enters_again_and_each_release_takes_one_down,
    requests_without_an_owner_are_strangers,
    a_guard_that_is_dropped_takes_one_down,
    a_release_that_is_dropped_takes_one_down,
);

const SHORT: Duration = Duration::from_millis(150);

async fn entries<T: Target>(stage: &Stage<T>) -> Vec<i64> {
    stage.locks.queue("one").await.unwrap().iter().map(|queued| queued.entries).collect()
}

async fn until_entries<T: Target>(stage: &Stage<T>, wanted: &[i64]) {
    let counted = async {
        while entries(stage).await != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LEASE, counted).await.unwrap();
}

async fn an_owner_enters_again_and_each_release_takes_one_down<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let job = || stage.locks.request("one").owner("job");
    let first = job().lock().await.unwrap();
    let second = job().lock().await.unwrap();
    let third = stage.locks.clone().request("one").owner("job").lock().await.unwrap();
    assert!(first.token() == second.token() && second.token() == third.token());
    assert_eq!(entries(&stage).await, [3]);
    first.release().await.unwrap();
    assert_eq!(entries(&stage).await, [2]);
    // Not another owner, and not an owner of this name of another client.
    let other = stage.locks.request("one").owner("another job").timeout(SHORT).lock().await;
    assert!(matches!(other, Err(LockError::TimedOut { .. })), "{other:?}");
    let other = stage.other().await.locks.request("one").owner("job").timeout(SHORT).lock().await.map(|_| ());
    assert!(matches!(other, Err(LockError::TimedOut { .. })), "{other:?}");
    stage.queued("one", 1).await;
    third.release().await.unwrap();
    assert_eq!(entries(&stage).await, [1]);
    assert!(second.is_held());
    let token = second.token();
    second.release().await.unwrap();
    assert_eq!(entries(&stage).await, [0; 0]);
    let anew = job().lock().await.unwrap();
    assert!(anew.token() > token);
    anew.release().await.unwrap();
    stage.end().await;
}

async fn requests_without_an_owner_are_strangers<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let guard = stage.locks.lock("one").await.unwrap();
    let again = stage.locks.request("one").timeout(SHORT).lock().await;
    assert!(matches!(&again, Err(LockError::TimedOut { waited, .. }) if *waited == SHORT), "{again:?}");
    guard.release().await.unwrap();
    stage.end().await;
}

async fn a_guard_that_is_dropped_takes_one_down<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let job = || stage.locks.request("one").owner("job");
    let (first, second) = (job().lock().await.unwrap(), job().lock().await.unwrap());
    drop(first);
    until_entries(&stage, &[1]).await;
    assert!(second.is_held());
    drop(second);
    stage.queued("one", 0).await;
    stage.end().await;
}

/// Dropped at any point: before its turn, while another of its owner enters, during its statement.
async fn a_release_that_is_dropped_takes_one_down<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    for micros in (0..20).map(|step| step * 200) {
        let job = || stage.locks.request("one").owner("job");
        let (first, second) = (job().lock().await.unwrap(), job().lock().await.unwrap());
        let locks = stage.locks.clone();
        let entering = tokio::spawn(async move { locks.request("one").owner("job").lock().await.unwrap() });
        drop(timeout(Duration::from_micros(micros), first.release()).await);
        let third = entering.await.unwrap();
        until_entries(&stage, &[2]).await;
        assert!(second.is_held() && third.is_held());
        drop(timeout(Duration::from_micros(micros), second.release()).await);
        drop(timeout(Duration::from_micros(micros), third.release()).await);
        stage.queued("one", 0).await;
    }
    stage.end().await;
}
