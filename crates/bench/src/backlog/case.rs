//! The rows in the table beside the drained records.

use std::{fmt, sync::Arc, time::Duration};

use keylane::{Completed, Config, Registration, admin::InstanceId};

use super::{
    super::{
        engine::Engine,
        handler::{Apart, Count, HANDLER},
        pile::{Keys, Pile, Stored},
        stage::Stage,
        tally::{Event, Tally},
    },
    Options, Result,
};

/// The rows beside the drained records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    /// Nothing else.
    Plain,
    /// Many more pending records.
    Pending,
    /// Many more pending records, with statistics that were taken when the table was empty.
    Stale,
    /// Many older pending records, in the partitions of an instance that does nothing.
    Others,
    /// Many records that are held behind a blocked record of their key.
    Held,
    /// Many held records whose key goes on: they return beside the other records. Only the others are counted.
    Releasing,
    /// Nothing else, while a transaction that is older than all records stays open.
    Open,
    /// Nothing else. Completed records are kept.
    Keeping,
    /// Many completed records, which are kept.
    Kept,
}

impl Case {
    const ALL: [Self; 9] = [
        Self::Plain,
        Self::Pending,
        Self::Stale,
        Self::Others,
        Self::Held,
        Self::Releasing,
        Self::Open,
        Self::Keeping,
        Self::Kept,
    ];

    /// The cases that a database can have.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        // With one writer at a time, an open transaction keeps out all others.
        let possible = |case: &Self| *case != Self::Open || !E::ONE_WRITER;
        Self::ALL.into_iter().filter(possible).collect()
    }

    /// The case to compare with: it differs from this one in one thing.
    pub(super) fn reference(self) -> Option<Self> {
        match self {
            Self::Plain | Self::Keeping => None,
            Self::Pending | Self::Others | Self::Held | Self::Releasing | Self::Open => Some(Self::Plain),
            Self::Stale => Some(Self::Pending),
            Self::Kept => Some(Self::Keeping),
        }
    }

    pub(super) fn applied_to(self, mut config: Config) -> Config {
        if matches!(self, Self::Keeping | Self::Kept) {
            config.retention.completed = Completed::Keep;
        }
        // This is so long that an instance without heartbeats counts as alive.
        config.cluster.stale_instance_timeout = Duration::from_secs(3600);
        config
    }

    /// The connection of the transaction that stays open in this case.
    pub(super) async fn writer<E: Engine>(self, stage: &Stage<E>) -> Result<Option<E::Connection>> {
        if self != Self::Open {
            return Ok(None);
        }
        let mut conn = E::connect(&stage.pool).await?;
        E::execute(&mut conn, E::BEGIN).await?;
        E::execute(&mut conn, "INSERT INTO keylane_bench_effect VALUES ('open', 0)").await?;
        Ok(Some(conn))
    }

    /// Fills the new tables.
    pub(super) async fn arrange<E: Engine>(
        self,
        stage: &Stage<E>,
        pile: &Pile<'_, E>,
        options: &Options,
    ) -> Result<()> {
        let [records, drained, held] = [options.records, options.drained, options.held].map(|n| n.get());
        let mut conn = E::connect(&stage.pool).await?;
        match self {
            Self::Plain | Self::Open | Self::Keeping => pile.add(drained, Keys::All, Stored::Pending).await?,
            Self::Pending => pile.add(records.max(drained), Keys::All, Stored::Pending).await?,
            Self::Stale => {
                for statement in E::FREEZE_STATISTICS {
                    E::execute(&mut conn, *statement).await?;
                }
                return pile.add(records.max(drained), Keys::All, Stored::Pending).await;
            }
            Self::Others => {
                pile.add(records, Keys::Odd, Stored::Pending).await?;
                pile.add(drained, Keys::Even, Stored::Pending).await?;
                E::execute(&mut conn, odd_partitions_taken()).await?;
            }
            Self::Held | Self::Releasing => {
                pile.add(1, Keys::First, Stored::Failed).await?;
                pile.add(held, Keys::First, Stored::Held).await?;
                E::execute(&mut conn, self.lane(held)).await?;
                pile.add(drained, Keys::Later, Stored::Pending).await?;
            }
            Self::Kept => {
                pile.add(records, Keys::All, Stored::Completed).await?;
                pile.add(drained, Keys::All, Stored::Pending).await?;
            }
        }
        for refresh in E::REFRESH {
            E::execute(&mut conn, *refresh).await?;
        }
        Ok(())
    }

    /// The row of the lane of the failed record.
    fn lane(self, held: usize) -> String {
        let reason = if self == Self::Held { "blocked" } else { "releasing" };
        format!(
            "INSERT INTO keylane_bench_lane (partition_no, record_key, handler, reason, record_id, held) \
             SELECT partition_no, record_key, handler, '{reason}', id, {held} FROM keylane_bench_record \
             WHERE status = 2"
        )
    }

    /// The handler. It counts all records but those of the key that goes on.
    pub(super) fn handler(self, others: &Arc<Tally>) -> Registration {
        match self {
            Self::Releasing => {
                let (hot_key, hot) = (Event::key_of(0), Arc::new(others.part(0)));
                let others = Arc::clone(others);
                Registration::typed(HANDLER, Apart { hot_key, hot, others })
            }
            _ => Registration::typed(HANDLER, Count(Arc::clone(others))),
        }
    }

    /// Returns at the end of the measured time.
    pub(super) async fn done(self, tally: &Tally) {
        match self {
            // The count of settled records does not show their keys.
            Self::Releasing => tally.all_handled().await,
            _ => tally.all_settled().await,
        }
    }
}

/// An instance that has joined and owns half of the partitions.
fn odd_partitions_taken() -> String {
    let other = InstanceId::generate();
    format!(
        "INSERT INTO keylane_bench_instance (instance_id, name, version, state) \
             VALUES ('{other}', 'another', '0', 'ACTIVE'); \
         UPDATE keylane_bench_partition SET owner = '{other}', generation = 1 WHERE partition_no % 2 = 1"
    )
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Pending => "pending",
            Self::Stale => "stale statistics",
            Self::Others => "others'",
            Self::Held => "held",
            Self::Releasing => "releasing",
            Self::Open => "open writer",
            Self::Keeping => "keeping",
            Self::Kept => "kept",
        })
    }
}
