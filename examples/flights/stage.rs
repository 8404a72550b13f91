//! The producing side: the tables, and the transactions in which flights are scheduled.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use futures::future::try_join_all;
use keylane::{Outbox, ScheduleError, TransactionError, sqlx};
use tokio::time::{Instant, sleep_until};

use crate::{
    database::{Owner, Place, create},
    flights::Flight,
    ledger::{self, Micros},
    settings,
};

/// Flights that are scheduled in a second: the week passes in about 20 s.
const FLIGHTS_PER_SECOND: u32 = 320;

/// Why a flight could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the business row was refused")]
    Row(#[from] sqlx::Error),
    #[error("the event was refused")]
    Event(#[from] ScheduleError),
}

/// The tables of one run, and the outbox of a process that schedules and handles nothing.
pub(crate) struct Stage<DB: Place> {
    pool: DB::Pool,
    outbox: Outbox<DB>,
    prefix: String,
    scheduled: Cell<usize>,
    /// By row: when its transaction had been committed.
    committed: RefCell<Vec<Option<Micros>>>,
}

impl<DB: Place> Stage<DB> {
    pub(crate) async fn set_up(url: &str, prefix: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let connected = DB::connect(url).await;
        let pool = connected.map_err(|error| format!("{} could not be opened: {error}", DB::TITLE))?;
        let outbox = Outbox::builder(pool.clone()).config(settings::of(prefix, 0)).build().await?;
        outbox.migrate().await?;
        create::<DB>(&pool, prefix).await?;
        Ok(Self {
            pool,
            outbox,
            prefix: prefix.to_owned(),
            scheduled: Cell::new(0),
            committed: RefCell::default(),
        })
    }

    /// Writes all flights at a steady rate, by several writers at once; those of one aircraft by one.
    pub(crate) async fn schedule(&self, flights: &[Flight]) -> Result<(), TransactionError<WriteError>> {
        self.committed.replace(vec![None; flights.len()]);
        let start = Instant::now();
        try_join_all((0..DB::WRITERS).map(|writer| self.write(flights, writer, start))).await.map(drop)
    }

    async fn write(
        &self,
        flights: &[Flight],
        writer: u64,
        start: Instant,
    ) -> Result<(), TransactionError<WriteError>> {
        for (flight, number) in flights.iter().zip(0..) {
            if flight.aircraft_hash() % DB::WRITERS != writer {
                continue;
            }
            sleep_until(start + Duration::from_secs(number) / FLIGHTS_PER_SECOND).await;
            self.depart(flight).await?;
            self.committed.borrow_mut()[flight.row - 1] = Some(ledger::now());
            self.scheduled.set(self.scheduled.get() + 1);
        }
        Ok(())
    }

    /// One transaction: the business row and the event, both or none.
    async fn depart(&self, flight: &Flight) -> Result<(), TransactionError<WriteError>> {
        let work = async |tx: &mut DB::Connection| {
            DB::insert_flight(tx, &self.prefix, flight).await?;
            self.outbox.schedule(tx, flight).await?;
            Ok(())
        };
        self.outbox.transaction(work).await
    }

    /// Flights scheduled so far.
    pub(crate) fn scheduled(&self) -> usize {
        self.scheduled.get()
    }

    /// When each flight had been scheduled, by row.
    pub(crate) fn committed(&self) -> Vec<Option<Micros>> {
        self.committed.borrow().clone()
    }

    /// Who owns each partition.
    pub(crate) async fn owners(&self) -> Result<Vec<Option<Owner>>, sqlx::Error> {
        DB::owners(&self.pool, &self.prefix).await
    }

    /// Removes all tables of this run.
    pub(crate) async fn tear_down(&self) -> Result<(), sqlx::Error> {
        DB::remove(&self.pool, &self.prefix).await
    }
}
