//! One look at the database: first the stops, then the pending records, then what has become due.

use std::sync::Arc;

use crate::{
    instance::Generation,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Stop},
    rules::frontier::{Frontier, Plan},
    store::{Store, StoreError, Suspicion, Sweep},
};

/// What a look is to bring.
pub(super) struct Look {
    pub(super) epoch: u64,
    /// Owned partitions in their turn.
    pub(super) turn: Vec<Partition>,
    /// Partitions whose stopped lanes are read first.
    pub(super) stops: PartitionSet,
    /// Those of which nothing is known yet: earlier owners may have crashed.
    pub(super) unread: PartitionSet,
    /// The generations under which those are owned.
    pub(super) generations: Vec<(Partition, Generation)>,
    /// Whether delayed records are looked for, too.
    pub(super) due: bool,
    /// Whether there is a reason in this process to look.
    pub(super) asked: bool,
    /// The version of the database at the last look without one.
    pub(super) version: Option<i64>,
    pub(super) skip: Vec<RecordId>,
    pub(super) limit: usize,
    /// Only some of the partitions are looked at, each by itself.
    pub(super) part: bool,
    /// How far the ids are known; moved on by the look.
    pub(super) frontier: Frontier,
}

/// What it brought.
pub(super) struct Seen {
    pub(super) look: Look,
    pub(super) stops: Vec<Stop>,
    pub(super) suspicions: Vec<Suspicion>,
    pub(super) records: Vec<Record>,
    /// Whether pending ones are among them.
    pub(super) new: bool,
    /// Whether the limit cut it short: look again at once.
    pub(super) more: bool,
    /// Whether it has cut short what is due.
    pub(super) more_due: bool,
    pub(super) error: Option<StoreError>,
    /// How often the cluster has changed, if that was asked for.
    pub(super) cluster_changes: Option<i64>,
}

/// Takes the look. The stops are read before the records: a lane that the list does not name is
/// not stopped by anyone but this instance when the records are read, and of its own it knows.
pub(super) async fn look(store: Arc<dyn Store>, look: Look) -> Seen {
    let (stops, suspicions, records) = (Vec::new(), Vec::new(), Vec::new());
    let (new, more, more_due) = (false, false, false);
    let mut seen =
        Seen { look, stops, suspicions, records, new, more, more_due, error: None, cluster_changes: None };
    if let Err(error) = fill(&*store, &mut seen).await {
        seen.records.clear();
        seen.error = Some(error);
    }
    seen
}

async fn fill(store: &dyn Store, seen: &mut Seen) -> Result<(), StoreError> {
    if seen.look.is_in_vain(store).await? {
        return Ok(());
    }
    let Look { turn, stops, unread, due, skip, limit, part, frontier, .. } = &mut seen.look;
    let owned: PartitionSet = turn.iter().copied().collect();
    if !stops.is_empty() {
        seen.stops = store.stops(*stops).await?;
    }
    if !unread.is_empty() {
        seen.suspicions = store.suspicions(*unread).await?;
    }
    if *due {
        let (records, changes) = store.due(owned, skip, *limit).await?;
        (seen.records, seen.cluster_changes) = (records, Some(changes));
        seen.more_due = seen.records.len() >= *limit;
        seen.more = seen.more_due;
    }
    let left = limit.saturating_sub(seen.records.len()).max(1);
    let plan = if *part { Plan::Apart } else { plan(store, frontier, owned).await? };
    let pending = match plan {
        Plan::Sweep { from, reach } => {
            let sweep = Sweep { partitions: owned, from, reach, skip, limit: left };
            let (records, horizon) = store.sweep(sweep).await?;
            let last = records.last().map_or(from, |record| record.delivery.id);
            seen.more |= frontier.swept((from, reach), left, (records.len(), last), horizon);
            records
        }
        Plan::Apart | Plan::Probe => {
            let records = store.fetch(turn, skip, left).await?;
            seen.more |= records.len() >= left;
            records
        }
    };
    seen.new = !pending.is_empty();
    seen.records.extend(pending);
    Ok(())
}

impl Look {
    /// Nobody has asked for more than what others have committed, and nobody has committed anything.
    async fn is_in_vain(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        if self.asked || self.due || !self.stops.is_empty() {
            return Ok(false);
        }
        // It is read before the records: what is committed in between is looked for once more.
        let before = std::mem::replace(&mut self.version, store.version().await?);
        Ok(self.version.is_some() && self.version == before)
    }
}

/// How to look, once it is known where the head is.
async fn plan(store: &dyn Store, frontier: &mut Frontier, owned: PartitionSet) -> Result<Plan, StoreError> {
    match frontier.plan(owned) {
        Plan::Probe => Ok(frontier.probed(store.probe(owned).await?)),
        plan => Ok(plan),
    }
}
