//! One holder at a time, in the order of arrival, with tokens that grow: in one process, by its own book.

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use crate::{
    stage::{LONG, Stage},
    target::{Target, on_each},
};

on_each!(
    holders_never_overlap_under_any_level_of_isolation,
    waiters_are_served_in_the_order_in_which_they_came,
    resources_do_not_wait_for_one_another,
);

async fn holders_never_overlap_under_any_level_of_isolation<T: Target>() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let Some(stage) = Stage::<T>::with(level, LONG).await else { return };
        let clients =
            [&stage.locks.clone(), &stage.other().await.locks, &stage.other().await.locks].map(Clone::clone);
        // The holder that is inside, and the tokens of former holders.
        let book = Arc::new(Mutex::new((false, Vec::new())));
        let mut tasks = JoinSet::new();
        for task in 0..12 {
            let (locks, book) = (clients[task % clients.len()].clone(), Arc::clone(&book));
            tasks.spawn(async move {
                for _ in 0..10 {
                    let guard = locks.lock("one").await.unwrap();
                    {
                        let (is_inside, tokens) = &mut *book.lock().unwrap();
                        assert!(!*is_inside, "two at a time");
                        *is_inside = true;
                        tokens.push(guard.token());
                    }
                    tokio::task::yield_now().await;
                    book.lock().unwrap().0 = false;
                    guard.release().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        let tokens = &book.lock().unwrap().1.clone();
        assert!(tokens.len() == 120 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert_eq!(stage.number("SELECT count(*) FROM {}ticket").await, 0);
        stage.end().await;
    }
}

async fn waiters_are_served_in_the_order_in_which_they_came<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", LONG).await else { return };
    let other = stage.other().await;
    let holder = stage.locks.lock("one").await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..10 {
        // Neighbours are of the same client, or of two.
        let locks = if number % 3 == 0 { stage.locks.clone() } else { other.locks.clone() };
        let served = Arc::clone(&served);
        tasks.spawn(async move {
            let guard = locks.lock("one").await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        stage.queued("one", number + 2).await;
    }
    holder.release().await.unwrap();
    tasks.join_all().await;
    assert_eq!(*served.lock().unwrap(), (0..10).collect::<Vec<_>>());
    stage.end().await;
}

async fn resources_do_not_wait_for_one_another<T: Target>() {
    let Some(stage) = Stage::<T>::with("READ COMMITTED", LONG).await else { return };
    let mut guards = Vec::new();
    // Names that a collation could take for one.
    for resource in ["a", "A", "a ", "ä", "x' OR '1' = '1"] {
        guards.push(stage.locks.lock(resource).await.unwrap());
    }
    assert_eq!(stage.number("SELECT count(*) FROM {}ticket").await, 5);
    for guard in guards {
        guard.release().await.unwrap();
    }
    stage.end().await;
}
