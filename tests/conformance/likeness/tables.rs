//! The content of the tables as the store shows it, without ids and times.

use keylane::{
    admin::Filter,
    inner::{Pick, Stop},
    partition::PartitionSet,
};

use super::{store::Likened, world::World};
use crate::outbox::ALL;

impl<T: Likened> World<'_, T> {
    /// One line per row of each table.
    pub(super) async fn tables(&self) -> Vec<String> {
        let mut lines = self.of_records().await;
        lines.extend(self.of_lanes().await);
        lines.extend(self.of_cluster().await);
        lines
    }

    async fn of_records(&self) -> Vec<String> {
        let store = &self.store;
        let counts = store.counts().await.unwrap();
        let mut lines =
            vec![format!("records {:?}", counts.records), format!("lanes {:?}", counts.stopped_lanes)];
        let partitions = self.partitions();
        let pending = store.fetch_by_partition(&partitions, Pick::new(&[], ALL)).await.unwrap();
        lines.extend(pending.iter().map(|record| format!("pending {}", self.record(record))));
        let (due, changes) = store.fetch_due(PartitionSet::ALL, Pick::new(&[], ALL)).await.unwrap();
        let mut due: Vec<String> = due.iter().map(|record| format!("due {}", self.record(record))).collect();
        due.sort_unstable();
        lines.append(&mut due);
        lines.push(format!("changes of the cluster {changes}"));
        for failed in store.failed(&Filter::all(), 0, ALL).await.unwrap() {
            let (payload, error) = (String::from_utf8_lossy(&failed.payload), &failed.last_error);
            let name = self.name(failed.id);
            lines.push(format!("failed {name} {:?} {} {error:?} {payload}", failed.lane, failed.attempts));
        }
        for letter in store.dead_letters(&Filter::all(), 0, ALL).await.unwrap() {
            let (attempts, error, class) = (letter.attempts, &letter.error, &letter.error_class);
            let name = self.name(letter.id);
            lines.push(format!("dead letter {name} {:?} {attempts} {error} {class:?}", letter.lane));
        }
        lines
    }

    async fn of_lanes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for stopped in self.store.stopped_lanes(&Filter::all(), 0, ALL).await.unwrap() {
            let (by, lane, reason) = (self.name(stopped.record), &stopped.lane, stopped.reason);
            let (held, attempts, error) = (stopped.held, stopped.attempts, &stopped.last_error);
            let event = stopped.event_id.is_some();
            lines.push(format!("stopped by {by} {lane:?} {reason} {held} {attempts} {error:?} {event}"));
        }
        let mut stops: Vec<String> = Vec::new();
        for Stop { lane, reason, record, record_exists, released_to } in
            self.store.stops(PartitionSet::ALL).await.unwrap()
        {
            let by = self.name(record);
            stops.push(format!("stop {by} {lane:?} {reason} {record_exists} {}", released_to > 0));
        }
        let suspicions = self.store.suspicions(PartitionSet::ALL).await.unwrap();
        stops.extend(suspicions.iter().map(|suspicion| {
            let of = suspicion.record.map(|id| self.name(id));
            format!("suspicion {:?} {of:?} {}", suspicion.partition, suspicion.crashes)
        }));
        stops.sort_unstable();
        lines.append(&mut stops);
        lines
    }

    async fn of_cluster(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for instance in self.store.instances(ALL).await.unwrap() {
            let (state, partitions) = (instance.state, instance.partitions);
            lines.push(format!("instance {} {state:?} {partitions}", self.worker_name(instance.id)));
        }
        let partitions = self.store.partitions().await.unwrap();
        for row in partitions.iter().filter(|row| row.generation.0 > 0 || row.owner.is_some()) {
            let owner = row.owner.map(|owner| self.worker_name(owner));
            let claimed = row.claimed.is_some();
            lines.push(format!("partition {:?} {owner:?} {:?} {claimed}", row.partition, row.generation));
        }
        let routes = self.store.routes().await.unwrap();
        lines.extend(routes.iter().map(|route| format!("route {} {}", route.record_type, route.handler)));
        lines.sort_unstable();
        lines
    }
}
