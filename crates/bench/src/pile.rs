//! A million records in seconds: the library schedules one record per key, and the server copies these.

use keylane::partition::Partition;

use super::{Engine, Result, options::Load, stage::Stage, tally::Event};

/// Records copied in one statement.
const CHUNK: usize = 100_000;

/// A stage with new tables, and a record of each key to copy from.
pub(super) struct Pile<'a, E: Engine> {
    stage: &'a Stage<E>,
    load: Load,
}

/// The keys that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    All,
    First,
    /// All but the first.
    Later,
    /// Those in partitions with even numbers.
    Even,
    /// Those in partitions with odd numbers.
    Odd,
}

/// The stored status of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Pending = 0,
    Completed = 1,
    Failed = 2,
    Held = 3,
}

impl<'a, E: Engine> Pile<'a, E> {
    pub(super) async fn new(stage: &'a Stage<E>, load: Load) -> Result<Self> {
        const TEMPLATE: &str = "CREATE TABLE keylane_bench_template AS \
             SELECT ROW_NUMBER() OVER (ORDER BY id) AS number, created_at, event_id, partition_no, record_key, \
                 handler, record_type, content_type, payload FROM keylane_bench_record";
        stage.set_up().await?;
        stage.fill_with(load.keys.get(), |key| Event::of_key(key, load)).await?;
        E::execute(&mut E::connect(&stage.pool).await?, TEMPLATE).await?;
        stage.empty().await?;
        Ok(Self { stage, load })
    }

    /// Adds this many records, key after key and round after round.
    pub(super) async fn add(&self, records: usize, keys: Keys, stored: Stored) -> Result<()> {
        self.add_on(&mut E::connect(&self.stage.pool).await?, records, keys, stored).await
    }

    /// The same on this connection, in its transaction if it has begun one.
    pub(super) async fn add_on(
        &self,
        conn: &mut E::Connection,
        records: usize,
        keys: Keys,
        stored: Stored,
    ) -> Result<()> {
        let round = keys.count(self.load);
        if round == 0 {
            return Err(format!("{keys:?} keys are none: raise --keys").into());
        }
        // The template has one row per key, and each row gives one round.
        let rounds = (CHUNK / round).clamp(1, self.load.keys.get());
        let completed_at = if stored == Stored::Completed { "created_at" } else { "NULL" };
        self.stage.bar.set_length(records as u64);
        for start in (0..records).step_by(rounds * round) {
            let copied = (records - start).min(rounds * round);
            let sql = format!(
                "INSERT INTO keylane_bench_record (event_id, partition_no, record_key, handler, record_type, \
                     content_type, payload, status, completed_at) \
                 SELECT event_id, partition_no, record_key, handler, record_type, content_type, payload, \
                     {status}, {completed_at} \
                 FROM keylane_bench_template AS template CROSS JOIN \
                     (SELECT number AS round FROM keylane_bench_template WHERE number <= {rounds}) AS rounds \
                 WHERE {condition} ORDER BY rounds.round, template.number LIMIT {copied}",
                status = stored as u8,
                condition = keys.condition(),
            );
            E::execute(conn, sql).await?;
            self.stage.bar.set_position((start + copied) as u64);
        }
        Ok(())
    }
}

impl Keys {
    fn condition(self) -> &'static str {
        match self {
            Self::All => "1 = 1",
            Self::First => "template.number = 1",
            Self::Later => "template.number > 1",
            Self::Even => "template.partition_no % 2 = 0",
            Self::Odd => "template.partition_no % 2 = 1",
        }
    }

    fn count(self, load: Load) -> usize {
        let number = |key: &usize| Partition::of(&Event::key_of(*key)).number();
        let keys = 0..load.keys.get();
        match self {
            Self::All => keys.len(),
            Self::First => 1,
            Self::Later => keys.len() - 1,
            Self::Even => keys.filter(|key| number(key) % 2 == 0).count(),
            Self::Odd => keys.filter(|key| number(key) % 2 == 1).count(),
        }
    }
}
