//! Producers: transactions that cross, stay open, are rolled back, and commits that may have failed.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use keylane::{
    Outbox, ScheduleError, ScheduleOptions,
    memory::{Memory, MemoryPool, MemoryTransaction},
};
use keylane_checker::What;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{handlers::Moved, node::Process, plan::Plan};

/// One transaction after the other until the faults are over.
pub(crate) async fn write(
    process: Arc<Process>,
    outbox: Outbox<Memory>,
    pool: MemoryPool,
    plan: Plan,
    dice: Rng,
) {
    let mut writer = Writer { process, outbox, plan, dice };
    while !writer.process.world.has_enough() {
        let pause = writer.plan.pause;
        writer.rest(pause).await;
        if let Ok(tx) = pool.begin().await {
            writer.transaction(tx).await;
        }
    }
}

struct Writer {
    process: Arc<Process>,
    outbox: Outbox<Memory>,
    plan: Plan,
    dice: Rng,
}

impl Writer {
    async fn transaction(&mut self, mut tx: MemoryTransaction) {
        let _open = self.process.world.opens();
        let number = self.process.world.number();
        // Now and then more of one key than its share of the memory.
        let burst = (self.dice.u8(..15) == 0).then(|| self.dice.usize(..self.plan.keys));
        let count = if burst.is_some() { self.dice.usize(20..60) } else { self.dice.usize(1..5) };
        for _ in 0..count {
            let key = burst.unwrap_or_else(|| self.dice.usize(..self.plan.keys));
            self.schedule(&mut tx, number, &format!("key-{key}")).await;
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
            return self.process.note(What::RolledBack { tx: number });
        }
        self.process.note(What::Committing { tx: number });
        match tx.commit().await {
            Ok(()) => {
                self.process.note(What::Committed { tx: number });
                if self.dice.u8(..4) > 0 {
                    self.outbox.wake();
                }
            }
            Err(_) => self.process.note(What::CommitUnknown { tx: number }),
        }
    }

    async fn schedule(&mut self, tx: &mut MemoryTransaction, number: u64, key: &str) {
        self.process.world.scheduled();
        let event = Uuid::from_u128(self.dice.u128(..));
        let call = self.process.world.number();
        let delayed = self.dice.u8(..15) == 0;
        let mut options = ScheduleOptions::new().event_id(event);
        if delayed {
            options = options.after(Duration::from_millis(self.dice.u64(1..3_000)));
        }
        let (key, handlers) = (key.to_owned(), Vec::new());
        self.process.note(What::Scheduling { call, tx: number, event, key: key.clone(), handlers, delayed });
        let told = match self.outbox.schedule_with(&mut **tx, &Moved { key }, options).await {
            Ok(_) => What::Scheduled { call },
            Err(ScheduleError::Store(_)) => What::ScheduleUnknown { call },
            Err(_) => What::ScheduleFailed { call },
        };
        self.process.note(told);
    }

    async fn rest(&mut self, most: Duration) {
        sleep(Duration::from_micros(self.dice.u64(..=most.as_micros() as u64))).await;
    }
}
