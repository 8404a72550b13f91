//! `bench inbox`: messages that have their effect once, against a consumer written by hand with the same inserts.

#[cfg(feature = "kafka")]
mod kafka;

use std::{any::Any, fmt, num::NonZeroUsize};

use clap::Args;
use futures::FutureExt;
use keylane::sqlx::{self, AssertSqlSafe, PgConnection, PgPool, Postgres};
use keylane_inbox::{Inbox, Once};
use tokio::task::JoinSet;

use super::{
    Engine, Result,
    meter::{Cost, Figure, Meter},
    options::Show,
    report::Report,
    stage::Stage,
    turns::in_turn,
};

/// The consumer group of the bench.
const GROUP: &str = "bench";
/// The effect of a message: a row.
const CREATE_EFFECTS: &str = "CREATE TABLE keylane_bench_consumed (event_id text NOT NULL)";
const EFFECT: &str = "INSERT INTO keylane_bench_consumed VALUES ($1)";
const EFFECTS: &str = "INSERT INTO keylane_bench_consumed SELECT unnest($1::text[])";
/// The insert of an expert who needs no leases: it decides, and its decision is final.
const BY_HAND: &str = "INSERT INTO keylane_bench_inbox_message \
    (consumer_group, event_id, status, token, owner, attempts, cost_ms, received_at, finished_at) \
    VALUES ($1, $2, 'SUCCESS', '', '', 1, 0, now(), now()) ON CONFLICT DO NOTHING";

/// Options of `bench inbox`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Messages, each of which comes once.
    #[arg(long, default_value = "20000")]
    messages: NonZeroUsize,
    /// Consumers at once, each with a connection.
    #[arg(long, default_value = "8")]
    connections: NonZeroUsize,
    /// Messages of a call of the batch form.
    #[arg(long, default_value = "100")]
    batch: NonZeroUsize,
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    source: kafka::Source,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Who consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// `Inbox::run` for each message.
    Single,
    /// `Inbox::run_batch`.
    Batch,
    /// Insert or skip, the effect, commit: prepared statements on a connection of its own.
    Hand,
}

/// Consumes by each subject in turn, as often as asked.
///
/// # Errors
/// On another database than PostgreSQL, or if a message has not had its effect once.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let stage: &dyn Any = stage;
    let stage = stage.downcast_ref::<Stage<Postgres>>().ok_or("bench inbox needs PostgreSQL")?;
    let mut report = Report::new("inbox", <Postgres as keylane::database::Database>::NAME);
    let meter = Meter::<Postgres>::open(&stage.pool).await?;
    let subjects = vec![Subject::Single, Subject::Batch, Subject::Hand];
    let pairs = [(Subject::Single, Subject::Hand), (Subject::Batch, Subject::Single)];
    let measure = |subject| measure(stage, options, &meter, subject).boxed();
    in_turn(stage, &options.show, &mut report, subjects, &pairs, measure).await?;
    let Options { messages, connections, batch, .. } = options;
    report.note(format!("{messages} messages, {connections} connections, {batch} messages per batch"));
    report.note("each message writes one row, in the transaction that notes it");
    #[cfg(feature = "kafka")]
    if options.source.kafka {
        report.note("out of Kafka: a consumer of the library with so many calls, or so many loops by hand");
    }
    Ok(report)
}

async fn measure(
    stage: &Stage<Postgres>,
    options: &Options,
    meter: &Meter<Postgres>,
    subject: Subject,
) -> Result<[Figure; 4]> {
    stage.set_up().await?;
    // Its own pool: that of the command has a default number of connections.
    let connections = u32::try_from(options.connections.get())?;
    let limits = sqlx::postgres::PgPoolOptions::new().max_connections(connections);
    let pool = limits.connect_with((*stage.pool.connect_options()).clone()).await?;
    sqlx::raw_sql(CREATE_EFFECTS).execute(&pool).await?;
    let inbox = Inbox::builder(pool.clone()).table_prefix("keylane_bench_inbox_").build()?;
    inbox.migrate().await?;
    let cost = consume(options, &inbox, meter, subject).await?;
    check(&pool, options.messages.get()).await?;
    pool.close().await;
    Ok(cost.per_record(options.messages.get()))
}

async fn consume(
    options: &Options,
    inbox: &Inbox<Postgres>,
    meter: &Meter<Postgres>,
    subject: Subject,
) -> Result<Cost> {
    #[cfg(feature = "kafka")]
    if options.source.kafka {
        return kafka::consume(options, inbox, meter, subject).await;
    }
    let messages: Vec<String> =
        (0..options.messages.get()).map(|_| uuid::Uuid::now_v7().to_string()).collect();
    let share = messages.len().div_ceil(options.connections.get());
    let mut consumers = JoinSet::new();
    let start = meter.start().await?;
    for messages in messages.chunks(share) {
        let (messages, inbox, batch) = (messages.to_vec(), inbox.clone(), options.batch.get());
        consumers.spawn(async move {
            match subject {
                Subject::Single => singly(&inbox, &messages).await,
                Subject::Batch => in_batches(&inbox, &messages, batch).await,
                Subject::Hand => by_hand(inbox.pool(), &messages).await,
            }
        });
    }
    while let Some(consumed) = consumers.join_next().await {
        consumed??;
    }
    meter.stop(start).await
}

async fn singly(inbox: &Inbox<Postgres>, messages: &[String]) -> Result<()> {
    for message in messages {
        let effect = async |tx: &mut PgConnection| sqlx::query(EFFECT).bind(message).execute(tx).await;
        if let Once::Seen = inbox.run(message, GROUP, effect).await? {
            return Err("a new message was taken for one that was seen".into());
        }
    }
    Ok(())
}

async fn in_batches(inbox: &Inbox<Postgres>, messages: &[String], batch: usize) -> Result<()> {
    for messages in messages.chunks(batch) {
        let ids: Vec<&str> = messages.iter().map(String::as_str).collect();
        let effects = async |tx: &mut PgConnection, fresh: &[usize]| {
            let fresh: Vec<&str> = fresh.iter().map(|place| ids[*place]).collect();
            sqlx::query(EFFECTS).bind(fresh).execute(tx).await
        };
        inbox.run_batch(&ids, GROUP, effects).await?;
    }
    Ok(())
}

async fn by_hand(pool: &PgPool, messages: &[String]) -> Result<()> {
    for message in messages {
        one_by_hand(pool, message).await?;
    }
    Ok(())
}

async fn one_by_hand(pool: &PgPool, message: &str) -> Result<()> {
    let mut tx = pool.begin().await?;
    let first = sqlx::query(BY_HAND).bind(GROUP).bind(message).execute(&mut *tx).await?;
    if first.rows_affected() == 1 {
        sqlx::query(EFFECT).bind(message).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// # Errors
/// Unless each message has had its effect once, and is noted as consumed.
async fn check(pool: &PgPool, messages: usize) -> Result<()> {
    const COUNTS: &str = "SELECT count(*), count(DISTINCT event_id), \
        (SELECT count(*) FROM keylane_bench_inbox_message WHERE status = 'SUCCESS') FROM keylane_bench_consumed";
    let counts: (i64, i64, i64) = sqlx::query_as(AssertSqlSafe(COUNTS)).fetch_one(pool).await?;
    let messages = i64::try_from(messages)?;
    match counts == (messages, messages, messages) {
        true => Ok(()),
        false => {
            Err(format!("of {messages} messages there are {counts:?} effects, distinct and notes").into())
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "inbox",
            Self::Batch => "inbox in batches",
            Self::Hand => "by hand",
        })
    }
}
