//! Producers: transactions that overlap, stay open and are rolled back in whole or in part, and commits that
//! may have failed.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fastrand::Rng;
use futures::FutureExt;
use keylane::{
    Outbox, OutboxEvent, ScheduleError, ScheduleOptions, Scheduled,
    inner::ErrorClass,
    memory::{Memory, MemoryConnection, MemoryPool, MemoryTransaction},
};
use keylane_checker::What;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    node::{Process, Start},
    plan::Plan,
    told::{Moved, MovedAgain, Writing},
};

/// The dedup keys of all producers.
const DEDUP_KEYS: u32 = 60;

/// Runs one transaction after another until the faults are over.
pub(crate) async fn write(
    process: Arc<Process>,
    outbox: Outbox<Memory>,
    pool: MemoryPool,
    plan: Plan,
    start: Start,
    dice: Rng,
) {
    let mut writer = Writer { process, outbox, plan, start, dice, delayed: Vec::new() };
    loop {
        // Opened before the check, so that the run does not count as done while a producer is about to begin.
        let _open = writer.process.world.opens();
        if writer.process.world.has_enough() {
            return;
        }
        let pause = writer.plan.pause;
        writer.rest(pause).await;
        if let Ok(tx) = pool.begin().await {
            writer.transaction(tx).await;
        }
    }
}

/// Schedules single events while the cluster rests.
pub(crate) async fn trickle(
    process: Arc<Process>,
    outbox: Outbox<Memory>,
    pool: MemoryPool,
    plan: Plan,
    dice: Rng,
) {
    let start = Start { node: None, count: 0, second: true, all: true, writers: 0 };
    let mut writer = Writer { process, outbox, plan, start, dice, delayed: Vec::new() };
    loop {
        writer.rest(Duration::from_millis(1_500)).await;
        if !writer.process.world.is_resting() {
            return;
        }
        let _open = writer.process.world.opens();
        let Ok(mut tx) = pool.begin().await else { continue };
        let (number, key) = (writer.process.world.number(), writer.dice.usize(..writer.plan.keys));
        writer.schedule(&mut tx, number, &format!("key-{key}")).await;
        writer.commit(tx, number).await;
    }
}

struct Writer {
    process: Arc<Process>,
    outbox: Outbox<Memory>,
    plan: Plan,
    start: Start,
    dice: Rng,
    /// Events that can be cancelled if they are not due, with their transactions and keys.
    delayed: Vec<(u64, Uuid, String)>,
}

impl Writer {
    async fn transaction(&mut self, mut tx: MemoryTransaction) {
        let number = self.process.world.number();
        // At times, more records of one key than its share of the memory.
        let burst = (self.dice.u8(..15) == 0).then(|| self.dice.usize(..self.plan.keys));
        let count = if burst.is_some() { self.dice.usize(20..60) } else { self.dice.usize(1..5) };
        for _ in 0..count {
            let key = burst.unwrap_or_else(|| self.dice.usize(..self.plan.keys));
            let key = format!("key-{key}");
            match self.plan.habits.savepoints && self.dice.u8(..4) == 0 {
                true => self.within(&mut tx, number, &key).await,
                false => drop(self.schedule(&mut tx, number, &key).await),
            }
            if self.plan.habits.takes_back && self.dice.u8(..3) == 0 {
                self.cancel(&mut tx, number).await;
            }
            if burst.is_none() && self.dice.u8(..4) == 0 {
                self.rest(Duration::from_millis(50)).await;
            }
        }
        match self.dice.u8(..30) {
            0 => self.rest(Duration::from_secs(6)).await,
            1..=5 => self.rest(Duration::from_millis(500)).await,
            _ => {}
        }
        if self.dice.u8(..8) == 0 {
            drop(tx);
            return self.rolled_back(number);
        }
        self.commit(tx, number).await;
    }

    async fn commit(&mut self, tx: MemoryTransaction, number: u64) {
        self.process.note(What::Committing { tx: number });
        match tx.commit().await {
            Ok(()) => {
                self.process.note(What::Committed { tx: number });
                if self.dice.u8(..4) > 0 {
                    self.outbox.wake();
                }
            }
            // A savepoint was left open.
            Err(error) if error.class == ErrorClass::Setup => self.rolled_back(number),
            Err(_) => self.process.note(What::CommitUnknown { tx: number }),
        }
    }

    fn rolled_back(&mut self, number: u64) {
        self.delayed.retain(|(tx, ..)| *tx != number);
        self.process.note(What::RolledBack { tx: number });
    }

    /// Schedules some events after a savepoint, which is mostly released or rolled back to.
    async fn within(&mut self, conn: &mut MemoryConnection, number: u64, key: &str) {
        let Ok(mut savepoint) = conn.begin().await else { return };
        let mut events = Vec::new();
        for _ in 0..self.dice.u8(1..4) {
            events.extend(self.schedule(&mut savepoint, number, key).await);
        }
        match self.dice.u8(..40) {
            0 => std::mem::forget(savepoint),
            1..20 => drop(savepoint.commit().await),
            _ => {
                drop(savepoint);
                self.undone(number, events);
            }
        }
    }

    fn undone(&mut self, tx: u64, events: Vec<Uuid>) {
        self.delayed.retain(|(_, event, _)| !events.contains(event));
        self.process.note(What::Undone { tx, events });
    }

    /// Cancels a delayed event, if it is not due yet.
    async fn cancel(&mut self, conn: &mut MemoryConnection, number: u64) {
        if self.delayed.is_empty() {
            return;
        }
        let (of, event, key) = self.delayed.swap_remove(self.dice.usize(..self.delayed.len()));
        match self.outbox.cancel(conn, &key, event).await {
            Ok(0) | Err(_) => {}
            Ok(_) if of == number => self.undone(number, vec![event]),
            Ok(_) => self.process.note(What::Cancelled { tx: number, event }),
        }
    }

    /// Returns the event, unless it is certain that nothing was written.
    async fn schedule(&mut self, conn: &mut MemoryConnection, number: u64, key: &str) -> Option<Uuid> {
        let (process, habits) = (Arc::clone(&self.process), self.plan.habits);
        process.world.scheduled();
        let event = Uuid::from_u128(self.dice.u128(..));
        let call = process.world.number();
        let delayed = self.dice.u8(..15) == 0 || habits.takes_back && self.dice.u8(..4) == 0;
        let mut options = ScheduleOptions::new().event_id(event);
        if delayed {
            options = options.after(Duration::from_millis(self.dice.u64(1..3_000)));
        }
        let (of, handlers) = (key.to_owned(), Vec::new());
        process.note(What::Scheduling { call, tx: number, event, key: of, handlers, delayed });
        if habits.takes_back && self.dice.u8(..4) == 0 {
            let dedup_key = format!("dedup-{}", self.dice.u32(..DEDUP_KEYS));
            options = options.dedup_key(&dedup_key);
            process.note(What::Keyed { call, dedup_key });
        }
        let writing = if habits.unwritable { Writing::draw(&mut self.dice) } else { Writing::Succeeds };
        let told = match self.tell(conn, key, writing, options).await {
            Some(Ok(scheduled)) if scheduled.duplicate => What::Duplicate { call },
            Some(Ok(_)) => What::Scheduled { call },
            Some(Err(ScheduleError::Store(_))) => What::ScheduleUnknown { call },
            Some(Err(_)) | None => What::ScheduleFailed { call },
        };
        let written = matches!(told, What::Scheduled { .. } | What::ScheduleUnknown { .. });
        process.note(told);
        if written && delayed {
            self.delayed.push((number, event, key.to_owned()));
        }
        written.then_some(event)
    }

    /// Schedules in one of the versions of the event. Returns `None` if the serializer panics.
    async fn tell(
        &mut self,
        conn: &mut MemoryConnection,
        key: &str,
        writing: Writing,
        options: ScheduleOptions,
    ) -> Option<Result<Scheduled, ScheduleError>> {
        // A process without handlers may be of either build.
        let second = self.start.second || self.start.node.is_none() && self.dice.bool();
        let key = key.to_owned();
        match self.plan.habits.versions && second {
            true => self.schedule_one(conn, &MovedAgain { key, writing }, options).await,
            false => self.schedule_one(conn, &Moved { key, writing }, options).await,
        }
    }

    async fn schedule_one<E: OutboxEvent>(
        &self,
        conn: &mut MemoryConnection,
        event: &E,
        options: ScheduleOptions,
    ) -> Option<Result<Scheduled, ScheduleError>> {
        AssertUnwindSafe(self.outbox.schedule_with(conn, event, options)).catch_unwind().await.ok()
    }

    async fn rest(&mut self, most: Duration) {
        sleep(Duration::from_micros(self.dice.u64(..=most.as_micros() as u64))).await;
    }
}
