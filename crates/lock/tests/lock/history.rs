//! 10,000 operations on registers, judged.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    linear::{Operation, judge},
    stage::Stage,
    target::{Target, on_each},
};

on_each! {
    ten_thousand_operations_are_linearisable,
}

const OPERATIONS: usize = 10_000;
const TASKS: usize = 16;
const REGISTERS: [&str; 4] = ["a", "b", "c", "d"];

type Registers = Mutex<HashMap<&'static str, i64>>;

async fn ten_thousand_operations_are_linearisable<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let others = [stage.other().await, stage.other().await];
    let clients = [&stage, &others[0], &others[1]].map(|stage| stage.locks.clone());
    let registers = Arc::new(Registers::default());
    let origin = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (locks, registers) = (clients[task % clients.len()].clone(), Arc::clone(&registers));
        tasks.spawn(async move {
            let now = || origin.elapsed().as_nanos() as u64;
            let mut done = Vec::new();
            for number in 0..OPERATIONS / TASKS {
                let name = REGISTERS[(task + number * 7) % REGISTERS.len()];
                // Now and then somebody gives up, somewhere on the way.
                if number % 25 == 0 {
                    let wait = Duration::from_micros(number as u64 * 20);
                    drop(tokio::time::timeout(wait, locks.lock(name)).await);
                }
                let asked = now();
                let guard = locks.lock(name).await.unwrap();
                let had = now();
                let read = registers.lock().unwrap().get(name).copied().unwrap_or(0);
                tokio::task::yield_now().await;
                let wrote = (task * OPERATIONS + number + 1) as i64;
                registers.lock().unwrap().insert(name, wrote);
                let (token, gave_up) = (guard.token(), now());
                guard.release().await.unwrap();
                done.push((name, Operation { times: [asked, had, gave_up, now()], token, read, wrote }));
            }
            done
        });
    }
    let all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), OPERATIONS);
    for name in REGISTERS {
        let history: Vec<Operation> =
            all.iter().filter(|(on, _)| *on == name).map(|(_, operation)| operation.clone()).collect();
        assert!(history.len() > OPERATIONS / REGISTERS.len() / 2);
        judge(&history).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
    stage.end().await;
}
