//! The producing side: the tables, and the transactions in which flights are scheduled.

use std::{cell::Cell, path::Path, time::Duration};

use futures::future::try_join_all;
use keylane::{Outbox, OutboxEvent, ScheduleError, TransactionError, sqlx};
use keylane_checker::{Journal, What};
use tokio::time::{Instant, sleep_until};

use crate::{
    database::{Owner, Place, create},
    flights::Flight,
    ledger, settings,
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
    #[error("the ledger cannot be written")]
    Ledger(#[from] std::io::Error),
}

/// The tables of one run, and the outbox of a process that schedules and handles nothing.
pub(crate) struct Stage<DB: Place> {
    pool: DB::Pool,
    outbox: Outbox<DB>,
    prefix: String,
    scheduled: Cell<usize>,
    ledger: Journal,
}

impl<DB: Place> Stage<DB> {
    pub(crate) async fn set_up(
        url: &str,
        prefix: &str,
        dir: &Path,
    ) -> Result<Self, Box<dyn std::error::Error>> {
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
            ledger: Journal::open(&ledger::file_of(dir, 0), "producer", ledger::now)?,
        })
    }

    /// Writes all flights at a steady rate, by several writers at once; those of one aircraft by one.
    pub(crate) async fn schedule(&self, flights: &[Flight]) -> Result<(), TransactionError<WriteError>> {
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
            self.scheduled.set(self.scheduled.get() + 1);
        }
        Ok(())
    }

    /// One transaction: the business row and the event, both or none.
    async fn depart(&self, flight: &Flight) -> Result<(), TransactionError<WriteError>> {
        let tx = flight.row as u64;
        let work = async |conn: &mut DB::Connection| {
            DB::insert_flight(conn, &self.prefix, flight).await?;
            let event = self.outbox.schedule(conn, flight).await?.event_id;
            let (key, handlers) = (flight.key().into_owned(), vec!["bookkeeper".to_owned()]);
            self.enter(What::Scheduling { call: tx, tx, event, key, handlers, delayed: false })?;
            Ok(self.enter(What::Committing { tx })?)
        };
        self.outbox.transaction(work).await?;
        self.enter(What::Committed { tx }).map_err(|error| TransactionError::Work(error.into()))
    }

    /// Appends to the ledger of the producer.
    pub(crate) fn enter(&self, what: What) -> std::io::Result<()> {
        self.ledger.tell(what)
    }

    /// Flights scheduled so far.
    pub(crate) fn scheduled(&self) -> usize {
        self.scheduled.get()
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
