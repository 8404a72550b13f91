//! The other writers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    super::{Result, engine::Engine, options::Load, stage::Stage},
    case::Case,
};

const WRITERS: usize = 50;
const LONGEST_MILLIS: usize = 10_000;
const SHORTEST_MILLIS: usize = 1_000;
const BETWEEN_SMALL: Duration = Duration::from_millis(5);

/// The other writers of a case, at work.
pub(super) struct Others<E: Engine> {
    long: Option<E::Connection>,
    tasks: JoinSet<Result<usize>>,
    ended: Arc<AtomicBool>,
}

impl<E: Engine> Others<E> {
    pub(super) async fn begin(stage: &Stage<E>, case: Case, load: Load) -> Result<Self> {
        let (ended, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let mut long = None;
        let keys = load.keys.get();
        match case {
            Case::Plain => {}
            Case::Long => {
                let mut conn = E::connect(&stage.pool).await?;
                E::execute(&mut conn, E::BEGIN).await?;
                E::execute(&mut conn, insert(1)).await?;
                long = Some(conn);
            }
            Case::Elsewhere => {
                let mut conn = E::connect(&stage.pool).await?;
                E::execute(&mut conn, "CREATE TABLE IF NOT EXISTS keylane_bench_elsewhere (number INT)")
                    .await?;
                E::execute(&mut conn, E::BEGIN).await?;
                E::execute(&mut conn, "INSERT INTO keylane_bench_elsewhere VALUES (1)").await?;
                long = Some(conn);
            }
            Case::Snapshot => {
                let mut conn = E::connect(&stage.pool).await?;
                E::execute(&mut conn, E::BEGIN_SNAPSHOT).await?;
                long = Some(conn);
            }
            Case::Many => {
                for writer in 0..WRITERS {
                    tasks.spawn(many::<E>(stage.clone(), (writer, keys), Arc::clone(&ended)));
                }
            }
            Case::Small => drop(tasks.spawn(small::<E>(stage.clone(), keys, Arc::clone(&ended)))),
        }
        Ok(Self { long, tasks, ended })
    }

    /// Ends all writers but a long one. Returns the number of records that they have written.
    pub(super) async fn end(&mut self) -> Result<usize> {
        self.ended.store(true, Relaxed);
        let mut written = 0;
        while let Some(ended) = self.tasks.join_next().await {
            written += ended??;
        }
        Ok(written)
    }

    pub(super) async fn commit_long(&mut self) -> Result<()> {
        match &mut self.long {
            Some(conn) => E::execute(conn, "COMMIT").await,
            None => Ok(()),
        }
    }
}

/// A record like the one with this number.
fn insert(number: usize) -> String {
    let columns = "event_id, partition_no, record_key, handler, record_type, content_type, payload";
    format!(
        "INSERT INTO keylane_bench_record ({columns}) \
         SELECT {columns} FROM keylane_bench_template WHERE number = {number}"
    )
}

/// Slow transactions, one after another: each reads, then writes a record, and stays open. If the database has one
/// writer at a time, each only reads, and writes its record after its end. Their times are the same in each run.
async fn many<E: Engine>(
    stage: Stage<E>,
    (writer, keys): (usize, usize),
    ended: Arc<AtomicBool>,
) -> Result<usize> {
    let mut conn = E::connect(&stage.pool).await?;
    E::execute(&mut conn, E::WAIT_FOR_WRITERS).await?;
    let mut written = 0;
    while !ended.load(Relaxed) {
        let span = LONGEST_MILLIS - SHORTEST_MILLIS;
        let pause = SHORTEST_MILLIS + (writer * 7_919 + written * 104_729) % span;
        let insert = insert(1 + (writer * 31 + written) % keys);
        E::execute(&mut conn, E::BEGIN_SNAPSHOT).await?;
        if !E::ONE_WRITER {
            E::execute(&mut conn, insert.as_str()).await?;
        }
        for _ in 0..pause / 100 {
            sleep(Duration::from_millis(100)).await;
            if ended.load(Relaxed) {
                break;
            }
        }
        E::execute(&mut conn, "COMMIT").await?;
        if E::ONE_WRITER {
            E::execute(&mut conn, insert).await?;
        }
        written += 1;
    }
    Ok(written)
}

/// Small transactions at a steady rate.
async fn small<E: Engine>(stage: Stage<E>, keys: usize, ended: Arc<AtomicBool>) -> Result<usize> {
    let mut conn = E::connect(&stage.pool).await?;
    E::execute(&mut conn, E::WAIT_FOR_WRITERS).await?;
    let mut ticks = interval(BETWEEN_SMALL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut written = 0;
    while !ended.load(Relaxed) {
        ticks.tick().await;
        E::execute(&mut conn, insert(1 + written % keys)).await?;
        written += 1;
    }
    Ok(written)
}
