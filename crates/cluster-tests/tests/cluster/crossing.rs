//! Writers whose transactions cross, stay open and are rolled back, while workers are killed, frozen and
//! replaced.

use std::{env, time::Duration};

use fastrand::Rng;
use keylane::{Outbox, OutboxEvent, ScheduleOptions, database::Database};
use keylane_checker::{Invariant, Journal, What};
use keylane_cluster_tests::{event::Step, journal::now};
use sqlx::types::Uuid;

use crate::{
    cluster::{Cluster, HANDLER, KEYS},
    database::Target,
    stop_all,
    worker::Worker,
};

const WRITERS: u64 = 4;
/// The number of records, if `KEYLANE_CLUSTER_RECORDS` is not set.
const RECORDS: u64 = 6_000;
/// The most records between two faults.
const ROUND: u64 = 20_000;
/// The most transactions of a writer that the database may refuse to begin.
const MOST_REFUSED: u32 = 1_000;
/// The least number of rounds, so that each kind of fault comes once.
const LEAST_ROUNDS: u64 = 3;

/// One producer among several.
struct Writer<T: Target> {
    number: u64,
    outbox: Outbox<T::Db>,
    pool: T::Pool,
    journal: Journal,
    /// The last number that was given to a transaction, a call or an event of this writer.
    count: u64,
    refused: u32,
    dice: Rng,
}

impl<T: Target> Writer<T> {
    fn open(cluster: &mut Cluster<T>, number: u64, seed: u64) -> Self {
        let path = cluster.folder.join(format!("writer-{number}"));
        let journal = Journal::open(&path, format!("writer-{number}"), now).expect("journal");
        cluster.journals.push(path);
        let (outbox, pool) = (cluster.outbox.clone(), T::connect(&cluster.url));
        Self { number, outbox, pool, journal, count: 0, refused: 0, dice: Rng::with_seed(seed ^ number) }
    }

    /// A number that no other writer has.
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.number << 40 | self.count
    }

    fn tell(&self, what: What) {
        self.journal.tell(what).expect("journal");
    }

    async fn write(mut self, records: u64) -> Self {
        let mut written = 0;
        while written < records {
            written += self.transaction().await;
        }
        self
    }

    /// Writes up to ten records and commits nine times of ten. Returns the number of records.
    async fn transaction(&mut self) -> u64 {
        let (tx, records) = (self.number(), 1 + self.dice.u64(..10));
        // On SQLite, a writer that waits too long for the others is refused.
        let Ok(mut conn) = T::Db::begin(&self.pool).await else {
            self.refused += 1;
            assert!(self.refused < MOST_REFUSED, "no transaction can be begun");
            return 0;
        };
        for _ in 0..records {
            let (call, event) = (
                self.number(),
                Uuid::from_u128(u128::from(self.number()) << 32 | u128::from(self.dice.u32(..))),
            );
            let step = Step { key: self.dice.u32(..KEYS), step: self.count as u32 };
            let (key, handlers) = (step.key().into_owned(), vec![HANDLER.to_owned()]);
            self.tell(What::Scheduling { call, tx, event, key, handlers, delayed: false });
            let options = ScheduleOptions::new().event_id(event);
            match self.outbox.schedule_with(&mut conn, &step, options).await {
                Ok(_) => self.tell(What::Scheduled { call }),
                Err(error) => {
                    println!("not scheduled: {error}");
                    self.tell(What::ScheduleUnknown { call });
                    drop(conn);
                    self.tell(What::RolledBack { tx });
                    return 0;
                }
            }
            if self.dice.u8(..4) == 0 {
                // The transaction stays open while others commit.
                tokio::time::sleep(Duration::from_millis(
                    self.dice.u64(..if T::ONE_WRITER { 2 } else { 30 }),
                ))
                .await;
            }
        }
        if self.dice.u8(..10) == 0 {
            drop(conn);
            self.tell(What::RolledBack { tx });
            return 0;
        }
        self.tell(What::Committing { tx });
        self.tell(match T::Db::commit(conn).await {
            Ok(()) => What::Committed { tx },
            Err(_) => What::CommitUnknown { tx },
        });
        self.outbox.wake();
        records
    }
}

/// Kills a worker, freezes one until it is declared dead, or replaces one.
async fn disturb<T: Target>(cluster: &mut Cluster<T>, workers: &mut Vec<Worker>, round: u64) {
    match round % LEAST_ROUNDS {
        0 => {
            cluster.kill(workers.remove(0)).await;
            workers.push(cluster.worker().await);
        }
        1 => {
            let instance = workers[0].instance();
            cluster.pause(&workers[0], &instance).await;
            cluster.watcher().wait_until_taken_over(&instance).await;
            cluster.wake(&workers[0], &instance);
        }
        _ => {
            workers.push(cluster.worker().await);
            assert!(workers.remove(0).stop().await, "shutdown was not graceful");
        }
    }
}

pub(crate) async fn crossing_writers_lose_and_invert_nothing<T: Target>(store: &str) {
    let records = env::var("KEYLANE_CLUSTER_RECORDS").map_or(RECORDS, |text| text.parse().expect("a number"));
    let mut cluster = Cluster::<T>::new(&format!("cross{}", &store[..2]), "plain").await;
    let mut workers = cluster.workers(3).await;
    let seed = now();
    println!("writers: seed {seed}");
    let mut writers: Vec<Writer<T>> =
        (1..=WRITERS).map(|number| Writer::open(&mut cluster, number, seed)).collect();
    let rounds = LEAST_ROUNDS.max(records.div_ceil(ROUND));
    for round in 0..rounds {
        let share = records.div_ceil(rounds * WRITERS);
        let writing: Vec<_> = writers.drain(..).map(|writer| tokio::spawn(writer.write(share))).collect();
        disturb(&mut cluster, &mut workers, round).await;
        for writer in writing {
            writers.push(writer.await.expect("a writer"));
        }
        cluster.wait_until_empty().await;
    }
    let report = cluster.verdict_of(&["crash", "rollback"], &["eviction", "takeover"]).await;
    let judged = report.judged.get(&Invariant::FirstAttempts).copied().unwrap_or_default();
    assert!(judged >= records, "{report:?}");
    stop_all(workers).await;
    cluster.erase().await;
}
