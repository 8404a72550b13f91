//! The memory store behaves like the others: memory and a database give the same results to the same random
//! commands, and have the same tables afterwards.
//!
//! Each seed is a run of up to sixty commands, every fourth one of claimed mode. A difference is shrunk to the
//! fewest commands that show it. `KEYLANE_LIKENESS_SECONDS` is the time per database (5),
//! `KEYLANE_LIKENESS_SEED` the first seed. Commands that would wait for an open transaction are left out: other
//! cases cover waits.

mod acts;
mod claims;
mod command;
mod store;
mod tables;
mod world;

use std::{env, sync::Arc, time::Duration};

use keylane::{Completed, inner::Store};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use tokio::time::Instant;
use uuid::Uuid;

use self::{
    command::{Command, WORKERS, claiming, command},
    store::Likened,
    world::World,
};
use crate::{outbox::Outbox, target::MemoryTarget};

const ALL_COMPLETED: [Completed; 3] = [Completed::Delete, Completed::Archive, Completed::Keep];

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs commands on both stores. The first results that differ are the failure.
async fn compare<T: Likened>(
    outbox: &Outbox<T>,
    (store, completed): (Arc<dyn Store>, Completed),
    commands: &[Command],
) -> Result<(), TestCaseError> {
    T::clear(outbox).await;
    let memory = Outbox::<MemoryTarget>::open().await.unwrap();
    let mut expected = World::new(outbox, store, T::ISOLATION);
    let mut found = World::new(&memory, memory.store_that(completed), T::ISOLATION);
    // Most commands need a worker.
    for worker in 0..WORKERS {
        let join = Command::Join { worker };
        prop_assert_eq!(found.run(&join).await, expected.run(&join).await);
    }
    for (at, command) in commands.iter().enumerate() {
        let (expected, found) = (expected.run(command).await, found.run(command).await);
        prop_assert_eq!(found, expected, "memory (left) answers command {} otherwise: {:?}", at, command);
    }
    let (expected, found) = (expected.end().await, found.end().await);
    for (expected, found) in expected.iter().zip(&found) {
        prop_assert_eq!(found, expected, "memory (left) has other tables");
    }
    Ok(())
}

/// Compares for the set time, one seed after another.
pub(crate) fn memory_is_like_it<T: Likened>() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let Some(outbox) = runtime.block_on(Outbox::<T>::open()) else { return };
    let stores = {
        let _runtime = runtime.enter();
        ALL_COMPLETED.map(|completed| outbox.store_that(completed))
    };
    let until = Instant::now() + Duration::from_secs(setting("KEYLANE_LIKENESS_SECONDS").unwrap_or(5));
    let first = setting("KEYLANE_LIKENESS_SEED").unwrap_or(Uuid::now_v7().as_u128() as u64 >> 8);
    let mut seed = first;
    while seed == first || Instant::now() < until {
        let place = (seed % 3) as usize;
        let (completed, store) = (ALL_COMPLETED[place], &stores[place]);
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            max_shrink_time: 120_000,
            ..Config::default()
        };
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes));
        let case = |commands: Vec<Command>| {
            runtime.block_on(compare(&outbox, (Arc::clone(store), completed), &commands))
        };
        // Processes of both modes never work on the same tables.
        let commands = match seed % 4 {
            3 => prop::collection::vec(claiming(), 1..60).boxed(),
            _ => prop::collection::vec(command(), 1..60).boxed(),
        };
        if let Err(TestError::Fail(why, commands)) = runner.run(&commands, case) {
            let commands: Vec<String> = commands.iter().map(|command| format!("  {command:?}")).collect();
            // The reason comes last, because a long output loses its middle.
            panic!("{}\nKEYLANE_LIKENESS_SEED={seed}, {completed:?}: {why}", commands.join("\n"));
        }
        seed += 1;
    }
    eprintln!("{} seeds from {first} on", seed - first);
    runtime.block_on(outbox.erase());
}
