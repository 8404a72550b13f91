//! The tables of a bench: creates, fills and drops them.

use std::{sync::Arc, time::Duration};

use indicatif::ProgressBar;
use keylane::{Config, Outbox, Registration};
use tokio::time::Instant;

use super::{
    Engine, PREFIX, Result,
    handler::{Count, HANDLER},
    options::Load,
    tally::{Event, Settles, Tally},
    watch::progress_bar,
};

/// Records scheduled in one transaction.
pub(super) const CHUNK: usize = 10_000;

/// A database with the tables of a bench.
pub(super) struct Stage<E: Engine> {
    pub(super) pool: E::Pool,
    pub(super) config: Config,
    pub(super) bar: ProgressBar,
}

impl<E: Engine> Clone for Stage<E> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), config: self.config.clone(), bar: self.bar.clone() }
    }
}

impl<E: Engine> Stage<E> {
    /// Opens no connection. The tables have a prefix of their own, in the schema of the connection.
    pub(super) fn new(pool: E::Pool, config: Config) -> Self {
        let mut config = config.table_prefix(PREFIX);
        config.schema = None;
        Self { pool, config, bar: progress_bar() }
    }

    /// Creates the tables. If a killed bench has left tables, they are dropped first.
    pub(super) async fn set_up(&self) -> Result<()> {
        self.clear_away().await?;
        Outbox::builder(self.pool.clone()).config(self.config.clone()).build().await?.migrate().await?;
        let mut conn = E::connect(&self.pool).await?;
        E::execute(&mut conn, E::CREATE_EFFECT).await
    }

    /// Empties the tables.
    pub(super) async fn empty(&self) -> Result<()> {
        let mut conn = E::connect(&self.pool).await?;
        for clear in E::CLEAR {
            E::execute(&mut conn, *clear).await?;
        }
        Ok(())
    }

    /// Fills the emptied table of records. Returns their tally.
    pub(super) async fn fill(&self, records: usize, load: Load) -> Result<Arc<Tally>> {
        self.fill_with(records, |number| Event::numbered(number, load)).await
    }

    /// Fills the emptied table with these events by their number.
    pub(super) async fn fill_with(
        &self,
        records: usize,
        event: impl Fn(usize) -> Event,
    ) -> Result<Arc<Tally>> {
        self.fill_for(None, records, event).await
    }

    /// As [`Stage::fill_with`], for further handlers, too. The tally is of one handler.
    pub(super) async fn fill_for(
        &self,
        others: impl IntoIterator<Item = Registration>,
        records: usize,
        event: impl Fn(usize) -> Event,
    ) -> Result<Arc<Tally>> {
        self.empty().await?;
        let mut conn = E::connect(&self.pool).await?;
        self.bar.set_length(records as u64);
        let handler = Registration::typed(HANDLER, Count(Arc::new(Tally::new(0, 0..=0))));
        let builder = Outbox::builder(self.pool.clone()).config(self.config.clone());
        let outbox: Outbox<E> = builder.handler(handler).handlers(others).build().await?;
        for start in (0..records).step_by(CHUNK) {
            let end = records.min(start + CHUNK);
            let events: Vec<Event> = (start..end).map(&event).collect();
            outbox.transaction(async |tx| outbox.schedule_all(tx, &events).await).await?;
            self.bar.set_position(end as u64);
        }
        for refresh in E::REFRESH {
            E::execute(&mut conn, *refresh).await?;
        }
        self.tally(records).await
    }

    /// A tally that is complete with any of the table's records, if they are this many.
    pub(super) async fn tally(&self, records: usize) -> Result<Arc<Tally>> {
        let mut conn = E::connect(&self.pool).await?;
        let first = E::number(&mut conn, "SELECT MIN(id) FROM keylane_bench_record").await?;
        let last = E::number(&mut conn, "SELECT MAX(id) FROM keylane_bench_record").await?;
        Ok(Arc::new(Tally::new(records, first..=last)))
    }

    /// Fills the emptied table that transactional handlers write to: one row per key.
    pub(super) async fn fill_effects(&self, load: Load) -> Result<()> {
        let mut conn = E::connect(&self.pool).await?;
        let keys: Vec<usize> = (0..load.keys.get()).collect();
        for keys in keys.chunks(1000) {
            let rows: Vec<String> =
                keys.iter().map(|key| format!("('{}', 0)", Event::key_of(*key))).collect();
            E::execute(&mut conn, format!("INSERT INTO keylane_bench_effect VALUES {}", rows.join(", ")))
                .await?;
        }
        Ok(())
    }

    /// The library with these handlers. An observer counts the settled records in the tally.
    pub(super) async fn outbox(
        &self,
        config: Config,
        handlers: impl IntoIterator<Item = Registration>,
        tally: &Arc<Tally>,
    ) -> Result<Outbox<E>> {
        let builder = Outbox::builder(self.pool.clone()).config(config);
        Ok(builder.handlers(handlers).observer(Settles(Arc::clone(tally))).build().await?)
    }

    /// Returns when this many instances share the partitions evenly.
    pub(super) async fn balanced(&self, instances: usize) -> Result<()> {
        const SHARES: &str = "SELECT CASE WHEN SUM(share) = 256 AND MAX(share) - MIN(share) <= 1 \
             THEN COUNT(*) ELSE 0 END FROM (SELECT COUNT(*) AS share FROM keylane_bench_partition \
             WHERE owner IS NOT NULL GROUP BY owner) AS shares";
        const PATIENCE: Duration = Duration::from_secs(60);
        let mut conn = E::connect(&self.pool).await?;
        let started = Instant::now();
        while E::number(&mut conn, SHARES).await? != instances as i64 {
            if started.elapsed() > PATIENCE {
                return Err(format!("{instances} instances have not shared out the partitions").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The number of records that are still in the table.
    pub(super) async fn left(&self) -> Result<i64> {
        let mut conn = E::connect(&self.pool).await?;
        E::number(&mut conn, "SELECT COUNT(*) FROM keylane_bench_record").await
    }

    /// The number of effects that transactional handlers have written: one per record.
    pub(super) async fn effects(&self) -> Result<i64> {
        let mut conn = E::connect(&self.pool).await?;
        E::number(&mut conn, E::EFFECTS).await
    }

    /// Drops the tables.
    pub(super) async fn clear_away(&self) -> Result<()> {
        let mut conn = E::connect(&self.pool).await?;
        for drop in E::texts(&mut conn, E::DROPS).await? {
            E::execute(&mut conn, drop).await?;
        }
        Ok(())
    }
}
