//! `bench lock`: how fast a lock is handed over, against the locks of the database itself.

mod subject;

use std::{
    any::Any,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use clap::Args;
use keylane::sqlx::{self, MySql, Postgres, Sqlite};
use keylane_lock::LockClient;
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep},
};

use self::subject::{Hand, Locking, Subject};
use super::{
    Engine, Result,
    meter::Figure,
    options::{Show, seconds},
    report::Report,
    stage::Stage,
    statements,
};

const PREFIX: &str = "keylane_bench_lock_";
const RESOURCE: &str = "one";
/// Connections for the statements of all clients together.
const CONNECTIONS: u32 = 8;
/// The time after the first wait until no more connections are opened.
const SETTLING: Duration = Duration::from_secs(4);

/// Options of `bench lock`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Waiters at once. Each asks again as soon as it has released the lock.
    #[arg(long, value_delimiter = ',', default_value = "2,16,64")]
    waiters: Vec<NonZeroUsize>,
    /// Hand-overs per run.
    #[arg(long, default_value = "2000")]
    handovers: NonZeroUsize,
    /// How long waiters are watched who have to wait.
    #[arg(long, default_value = "30", value_parser = seconds)]
    idle_seconds: Duration,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Hands over by each subject in turn, as many times as `--runs` says.
///
/// # Errors
/// If two waiters have had the lock at the same time.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let stage: &dyn Any = stage;
    if let Some(stage) = stage.downcast_ref::<Stage<Postgres>>() {
        return measured(stage, options).await;
    }
    if let Some(stage) = stage.downcast_ref::<Stage<Sqlite>>() {
        return measured(stage, options).await;
    }
    measured(stage.downcast_ref::<Stage<MySql>>().ok_or("no such database")?, options).await
}

async fn measured<E: Hand>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("lock", <E as keylane::database::Database>::NAME);
    let bench = Bench { stage, pool: pool(stage).await? };
    bench.client()?.migrate().await?;
    bench.make_row().await?;
    let runs = options.show.runs.get();
    let mut turn = Subject::of::<E>();
    for run in 1..=runs {
        for waiters in options.waiters.iter().map(|waiters| waiters.get()) {
            let mut rates = Vec::new();
            for subject in turn.iter().copied() {
                let name = format!("{}, {waiters} waiters", subject.name::<E>());
                stage.bar.set_message(format!("run {run} of {runs}: {name}"));
                let [rate, turns] = bench.hand_over(subject, waiters, options.handovers.get()).await?;
                report.add_all(&name, &[rate, turns]);
                rates.push((subject, rate));
            }
            let of = |wanted| rates.iter().find(|(subject, _)| *subject == wanted).map(|(_, rate)| *rate);
            for theirs in [Subject::Native, Subject::Row] {
                let Some((ours, reference)) = of(Subject::Clients).zip(of(theirs)) else { continue };
                let name =
                    format!("{} / {}, {waiters} waiters", Subject::Clients.name::<E>(), theirs.name::<E>());
                report.add_all(&name, &[ours.over(&reference)]);
            }
        }
        let idle = bench.idle(options.idle_seconds).await?;
        report.add_all("waiters that wait", &[idle]);
        turn.rotate_left(1);
    }
    bench.pool.close().await;
    report.note(format!(
        "{} hand-overs; least / most: turns of the unluckiest and the luckiest waiter",
        options.handovers
    ));
    report.note("a client is what a process has; all clients share 8 connections, beside those for signals");
    Ok(report)
}

async fn pool<E: Hand>(stage: &Stage<E>) -> Result<sqlx::Pool<E>> {
    let limits = sqlx::pool::PoolOptions::<E>::new().max_connections(CONNECTIONS);
    Ok(limits.connect_with((*stage.pool.connect_options()).clone()).await?)
}

struct Bench<'a, E: Hand> {
    stage: &'a Stage<E>,
    pool: sqlx::Pool<E>,
}

impl<E: Hand> Bench<'_, E> {
    fn client(&self) -> Result<LockClient<E>> {
        let patient = Duration::from_secs(600);
        Ok(LockClient::builder(self.pool.clone()).table_prefix(PREFIX).timeout(patient).build()?)
    }

    /// The row that the plain loop locks.
    async fn make_row(&self) -> Result<()> {
        let mut conn = E::connect(&self.stage.pool).await?;
        <E as Engine>::execute(&mut conn, subject::CREATE_ROW).await
    }

    /// Measures this many hand-overs among this many waiters.
    async fn hand_over(&self, subject: Subject, waiters: usize, handovers: usize) -> Result<[Figure; 2]> {
        let shared = self.client()?;
        let (left, is_held) = (Arc::new(AtomicUsize::new(handovers)), Arc::new(AtomicBool::new(false)));
        let ready = Arc::new(Barrier::new(waiters + 1));
        let mut tasks = JoinSet::new();
        for _ in 0..waiters {
            let mut locking = match subject {
                Subject::Clients => Locking::Client(self.client()?),
                Subject::Tasks => Locking::Client(shared.clone()),
                Subject::Native | Subject::Row => Locking::session(subject, &self.stage.pool).await?,
            };
            let (left, is_held, ready) = (Arc::clone(&left), Arc::clone(&is_held), Arc::clone(&ready));
            tasks.spawn(async move {
                // All that the first wait opens is open before the clock starts.
                locking.turn(|| Ok(())).await?;
                ready.wait().await;
                let mut turns: usize = 0;
                while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                    let inside = || {
                        if is_held.swap(true, SeqCst) {
                            return Err("two have the lock at a time".into());
                        }
                        is_held.store(false, SeqCst);
                        Ok(())
                    };
                    locking.turn(inside).await?;
                    turns += 1;
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(turns)
            });
        }
        let mut turns = Vec::new();
        tokio::select! {
            // First, because the waiters may have ended already when both are polled.
            biased;
            _ = ready.wait() => {}
            // Only a waiter that has failed ends before that.
            Some(failed) = tasks.join_next() => return Err(failed?.err().unwrap_or_else(|| "ended early".into())),
        }
        let started = Instant::now();
        while let Some(ended) = tasks.join_next().await {
            turns.push(ended??);
        }
        let rate = handovers as f64 / started.elapsed().as_secs_f64();
        let (least, most) = (turns.iter().min().copied(), turns.iter().max().copied());
        let share = least.zip(most).map(|(least, most)| least as f64 / most as f64);
        Ok([
            Figure { name: "rate", unit: "hand-overs/s", value: Some(rate) },
            Figure { name: "turns", unit: "least / most", value: share },
        ])
    }

    /// Counts the statements of clients that only hold the lock or wait for it.
    async fn idle(&self, watched: Duration) -> Result<Figure> {
        const WAITERS: usize = 16;
        let holder = self.client()?.lock(RESOURCE).await?;
        let mut tasks = JoinSet::new();
        for _ in 0..WAITERS {
            let client = self.client()?;
            tasks.spawn(async move { client.lock(RESOURCE).await?.release().await });
        }
        sleep(SETTLING).await;
        let count = statements::Count::start();
        sleep(watched).await;
        let (sent, _) = count.so_far();
        drop(count);
        holder.release().await?;
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let each = sent as f64 / (WAITERS + 1) as f64 * 60.0 / watched.as_secs_f64();
        Ok(Figure { name: "statements", unit: "/min and waiter", value: Some(each) })
    }
}
