//! What a stretch of work costs: time, processor time of both sides, write-ahead log.

use std::{ops::AddAssign, time::Duration};

use tokio::time::Instant;

use super::{Engine, Result, processor};

/// Reads the clocks.
pub(super) struct Meter<E: Engine> {
    pool: E::Pool,
    /// The server's process, if it is on this machine.
    server: Option<u32>,
}

/// The clocks at the start of a stretch of work.
pub(super) struct Start {
    at: Instant,
    own: Option<Duration>,
    server: Option<Duration>,
    log: Option<i64>,
}

/// What a stretch of work has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    elapsed: Duration,
    /// Of this process, unless the work is done by others, whose times are then written here.
    pub(super) client: Option<Duration>,
    server: Option<Duration>,
    log_bytes: Option<i64>,
}

/// A figure of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// `None` if it cannot be read here.
    pub(super) value: Option<f64>,
}

impl Figure {
    /// The ratio of this figure to another.
    pub(super) fn over(self, other: &Self) -> Self {
        let value = self.value.zip(other.value).map(|(ours, theirs)| ours / theirs);
        Self { name: self.name, unit: "ratio", value }
    }
}

impl<E: Engine> Meter<E> {
    pub(super) async fn open(pool: &E::Pool) -> Result<Self> {
        let mut conn = E::connect(pool).await?;
        let server = E::server_process(&mut conn).await?;
        Ok(Self { pool: pool.clone(), server })
    }

    /// At the start, the clocks that take time to read are read first; at the end, last.
    pub(super) async fn start(&self) -> Result<Start> {
        let log = self.log_position().await?;
        let server = self.server.and_then(processor::of_server);
        Ok(Start { log, server, own: processor::own(), at: Instant::now() })
    }

    pub(super) async fn stop(&self, start: Start) -> Result<Cost> {
        let elapsed = start.at.elapsed();
        let own = processor::own();
        let server = self.server.and_then(processor::of_server);
        let log = self.log_position().await?;
        let between =
            |before: Option<Duration>, after: Option<Duration>| Some(after?.saturating_sub(before?));
        Ok(Cost {
            elapsed,
            client: between(start.own, own),
            server: between(start.server, server),
            log_bytes: log.zip(start.log).map(|(after, before)| after - before),
        })
    }

    async fn log_position(&self) -> Result<Option<i64>> {
        E::log_position(&mut E::connect(&self.pool).await?).await
    }
}

impl AddAssign for Cost {
    /// The one of the two that could be read.
    fn add_assign(&mut self, other: Self) {
        let sum = |a: Option<Duration>, b: Option<Duration>| Some(a.unwrap_or_default() + b?);
        self.elapsed += other.elapsed;
        self.client = sum(self.client, other.client);
        self.server = sum(self.server, other.server);
        self.log_bytes = other.log_bytes.map(|bytes| self.log_bytes.unwrap_or(0) + bytes);
    }
}

impl Cost {
    /// How many a second.
    pub(super) fn rate(self, count: usize) -> f64 {
        count as f64 / self.elapsed.as_secs_f64()
    }

    /// The figures of one record.
    pub(super) fn per_record(self, records: usize) -> [Figure; 4] {
        let rate = self.rate(records);
        let records = records as f64;
        let micros = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e6 / records);
        let bytes = self.log_bytes.map(|bytes| bytes as f64 / records);
        [
            Figure { name: "rate", unit: "records/s", value: Some(rate) },
            Figure { name: "client processor", unit: "us/record", value: micros(self.client) },
            Figure { name: "server processor", unit: "us/record", value: micros(self.server) },
            Figure { name: "log", unit: "bytes/record", value: bytes },
        ]
    }
}
