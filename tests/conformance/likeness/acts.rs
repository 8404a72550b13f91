//! The commands of workers and people.

use std::time::Duration;

use keylane::{
    OnFailure, RecordId,
    admin::{Filter, Generation, InstanceId},
    inner::{
        Change, ClusterView, DeadLetterCause, FenceRow, NewInstance, Repair, Resolution, SettleError,
        Settlement,
    },
    partition::Partition,
};

use super::{
    command::{Command, Outcome, Repairing, Reply, WORKERS},
    store::Likened,
    world::{Worker, World, told},
};
use crate::outbox::{ALL, a_moment};

const HOUR: Duration = Duration::from_secs(3600);
const NOBODY: &str = "nobody";

impl<T: Likened> World<'_, T> {
    /// The index of the worker that a command names.
    pub(super) fn worker(&self, worker: usize) -> Option<usize> {
        self.places[worker % WORKERS]
    }

    pub(super) async fn settle(
        &mut self,
        worker: usize,
        outcomes: &[(usize, bool, Outcome)],
        reply: Reply,
    ) -> String {
        let Some(worker) = self.worker(worker) else { return NOBODY.to_owned() };
        let settlements = self.settlements(outcomes);
        if settlements.is_empty() {
            return "nothing".to_owned();
        }
        let Worker { id, counter, server, .. } = self.workers[worker];
        let fence = FenceRow { counter, ..FenceRow::of_settler(id, server) };
        let mut answer = "not sent".to_owned();
        if !matches!(reply, Reply::RequestIsLost) {
            answer = match self.store.settle(fence, &settlements).await {
                Ok(settled) => {
                    self.workers[worker].counter = fence.moved().counter;
                    self.count_failures(&settlements, settled.applied);
                    format!("{} {} {}", settled.applied, settled.held, settled.releasing)
                }
                Err(SettleError::Store(error)) => format!("{:?}", error.class),
                Err(other) => format!("{other:?}"),
            };
        }
        if matches!(reply, Reply::Arrives) {
            return answer;
        }
        let resolution = self.store.resolve(fence).await.unwrap();
        if resolution == Resolution::NotApplied {
            self.workers[worker].counter = fence.invalidated().counter;
        }
        format!("{answer} {resolution:?}")
    }

    /// The settlements, at most one per record.
    fn settlements(&self, outcomes: &[(usize, bool, Outcome)]) -> Vec<Settlement> {
        let mut settlements: Vec<Settlement> = Vec::new();
        for (record, is_stale, outcome) in outcomes {
            let Some(&(number, id)) = self.unlocked(&[*record]).first() else { continue };
            let failures = self.known[number].failures + u32::from(*is_stale);
            let Some(change) = self.change(number, outcome) else { continue };
            if settlements.iter().all(|settlement| settlement.id != id) {
                settlements.push(Settlement { id, failures, change });
            }
        }
        settlements
    }

    fn change(&self, number: usize, outcome: &Outcome) -> Option<Change> {
        let lane = |number: usize| (self.known[number].key, self.known[number].handler);
        let other = |at: usize| -> Option<RecordId> {
            let others = || {
                let others =
                    (0..self.known.len()).filter(|other| *other != number && lane(*other) == lane(number));
                others.filter_map(|other| self.known[other].id)
            };
            others().nth(at.checked_rem(others().count())?)
        };
        Some(match outcome {
            Outcome::Complete => Change::Complete,
            Outcome::CompleteAndResume => Change::CompleteAndResume,
            Outcome::Resume => Change::Resume,
            Outcome::Release => Change::Release,
            Outcome::StopRelease { by } => Change::StopRelease { by: other(*by)? },
            Outcome::Retry { later, stop, counted } => Change::Retry {
                delay: if *later { HOUR } else { Duration::ZERO },
                error: format!("refused {number}"),
                stop: *stop,
                counted: *counted,
            },
            Outcome::Fail { block, counted } => Change::Fail {
                error: format!("spent {number}"),
                lane: if *block { OnFailure::Block } else { OnFailure::Continue },
                counted: *counted,
            },
            Outcome::Unroutable => Change::Unroutable,
            Outcome::Hold { behind } => Change::Hold { behind: other(*behind)? },
        })
    }

    /// Counts the failures, if all settlements were written.
    fn count_failures(&mut self, settlements: &[Settlement], applied: usize) {
        let counts = |change: &Change| {
            matches!(change, Change::Retry { counted: true, .. } | Change::Fail { counted: true, .. })
        };
        let is_outcome = |settlement: &&Settlement| {
            let change = &settlement.change;
            !matches!(
                change,
                Change::Hold { .. } | Change::Resume | Change::Release | Change::StopRelease { .. }
            )
        };
        if settlements.iter().filter(is_outcome).count() == applied {
            for settlement in settlements.iter().filter(|settlement| counts(&settlement.change)) {
                let known = self.known.iter_mut().find(|known| known.id == Some(settlement.id));
                known.into_iter().for_each(|known| known.failures += 1);
            }
        }
    }

    pub(super) async fn track(&self, command: &Command) -> String {
        let record = |number: usize| self.unlocked(&[number]).first().copied();
        match command {
            Command::TrackCall { worker, record: number } => {
                let (Some(worker), Some((number, id))) = (self.worker(*worker), record(*number)) else {
                    return NOBODY.to_owned();
                };
                let partition = self.partition(self.known[number].key);
                told(self.store.track_call(self.workers[worker].id, partition, id).await)
            }
            Command::EndTracking { record: number } => match record(*number) {
                Some((_, id)) => told(self.store.end_tracking(id).await),
                None => NOBODY.to_owned(),
            },
            Command::Calm { worker } => match self.worker(*worker) {
                Some(worker) => {
                    let partitions = self.partitions().into_iter().collect();
                    told(self.store.calm(self.workers[worker].id, partitions).await)
                }
                None => NOBODY.to_owned(),
            },
            other => format!("{other:?}"),
        }
    }

    pub(super) async fn repair(&mut self, records: &[usize], how: &Repairing) -> String {
        let repair = match how {
            Repairing::Retry => Repair::Retry,
            Repairing::Replace => Repair::Replace(br#"{"replaced":1}"#.to_vec()),
            Repairing::Discard => Repair::Discard,
        };
        let mut picked = self.unlocked(records);
        if picked.is_empty() {
            let failed = self.store.failed_ids(&Filter::all(), 0, ALL).await.unwrap();
            let all: Vec<usize> = (0..self.known.len()).collect();
            picked = self.unlocked(&all);
            picked.retain(|(_, id)| failed.contains(id));
        }
        let ids: Vec<RecordId> = picked.iter().map(|(_, id)| *id).collect();
        let repaired = self.store.repair_all(&ids, &repair).await;
        if repaired.as_ref().is_ok_and(|count| *count == ids.len()) {
            picked.iter().for_each(|(number, _)| self.known[*number].failures = 0);
        }
        told(repaired)
    }

    pub(super) async fn dead_letters(&mut self, command: &Command) -> String {
        match command {
            Command::CopyToDeadLetters { record } => {
                let Some(&(number, id)) = self.unlocked(&[*record]).first() else { return NOBODY.to_owned() };
                let (attempts, target, class) = (1, "orders".to_owned(), None);
                let error = format!("refused {number}");
                let cause = DeadLetterCause { attempts, target, error, class, kind: "error" };
                told(self.store.copy_to_dead_letters(id, &cause).await)
            }
            Command::TakeDeadLetters { records, schedule } => {
                let picked = self.unlocked(records);
                let there = self.store.dead_letter_ids(&Filter::all(), 0, ALL).await.unwrap();
                let ids: Vec<RecordId> = picked.iter().map(|(_, id)| *id).collect();
                let taken = self.store.take_dead_letters(&ids, *schedule).await;
                if *schedule {
                    let again = picked.iter().filter(|(_, id)| there.contains(id));
                    let mut again: Vec<_> = again.map(|(number, id)| (*id, *number)).collect();
                    again.sort_unstable();
                    self.schedule_again(&again.iter().map(|(_, number)| *number).collect::<Vec<_>>()).await;
                }
                told(taken)
            }
            other => format!("{other:?}"),
        }
    }

    pub(super) async fn purge(&self, instances: bool) -> String {
        // Every clock advances, so that all completed rows are older than zero.
        a_moment().await;
        if instances {
            return told(self.store.purge_instances(Duration::ZERO).await);
        }
        if self.locks_dedup_keys() {
            return "would wait".to_owned();
        }
        told(self.store.purge(Duration::ZERO, Duration::ZERO).await)
    }

    pub(super) async fn membership(&mut self, command: &Command) -> String {
        if let Command::Join { worker } = command {
            return self.join(worker % WORKERS).await;
        }
        let (Command::Beat { worker }
        | Command::Evict { worker, .. }
        | Command::Leave { worker }
        | Command::Drain { worker }
        | Command::Claim { worker, .. }
        | Command::Release { worker, .. }) = command
        else {
            return self.claims(command).await;
        };
        let Some(number) = self.worker(*worker) else { return NOBODY.to_owned() };
        let id = self.workers[number].id;
        match command {
            Command::Beat { .. } => {
                let view = self.store.beat(id).await.unwrap();
                self.workers[number].beat += i64::from(view.is_some());
                format!("{:?}", view.map(|view| self.view(&view, Some(id))))
            }
            Command::Evict { beat, .. } => {
                let beat = beat.map(|is_stale| self.workers[number].beat - i64::from(is_stale));
                let evicted = self.store.evict(id, beat).await;
                self.workers[number].is_live &= !evicted.as_ref().is_ok_and(|evicted| *evicted);
                told(evicted)
            }
            Command::Leave { .. } => {
                self.workers[number].is_live = false;
                told(self.store.leave(id).await)
            }
            Command::Drain { .. } => told(self.store.drain(id).await),
            Command::Claim { keys, stale, .. } => {
                let mut owned = self.store.claim(id, &self.rights(keys, *stale).await).await.unwrap();
                owned.sort_unstable();
                format!("{owned:?}")
            }
            Command::Release { keys, stale, .. } => {
                told(self.store.release(id, &self.rights(keys, *stale).await).await)
            }
            other => format!("{other:?}"),
        }
    }

    async fn join(&mut self, place: usize) -> String {
        if self.places[place].is_some_and(|number| self.workers[number].is_live) {
            return "it lives".to_owned();
        }
        let id = InstanceId::generate();
        let (name, version) = ("case".to_owned(), "0.0.0".to_owned());
        let joined = self.store.join(&NewInstance { id, name, version, fence_rows: 1 }).await;
        self.places[place] = Some(self.workers.len());
        let server = self.store.server().await.unwrap();
        self.workers.push(Worker { id, counter: 0, server, beat: 0, is_live: true });
        let view = self.store.view().await.unwrap();
        format!("{} {}", told(joined), self.view(&view, None))
    }

    /// The claims of these keys' partitions from a view, or claims that never existed.
    async fn rights(&self, keys: &[usize], stale: bool) -> Vec<(Partition, Generation)> {
        let view = self.store.view().await.unwrap();
        let mut wanted: Vec<Partition> = keys.iter().map(|key| self.partition(*key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let generation =
            |partition: &Partition| view.claims[partition.index()].generation.0 + i64::from(stale);
        wanted.into_iter().map(|partition| (partition, Generation(generation(&partition)))).collect()
    }

    /// A view as text. If `me` asks with a beat, without its own beat, which may be the one before.
    fn view(&self, view: &ClusterView, me: Option<InstanceId>) -> String {
        let beat = |member: &keylane::inner::Member| (Some(member.id) != me).then_some(member.beat);
        let members = view.members.iter();
        let mut members: Vec<_> =
            members.map(|member| (self.worker_name(member.id), member.state, beat(member))).collect();
        members.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let claims = self.partitions().into_iter().map(|partition| view.claims[partition.index()]);
        let claims: Vec<_> = claims
            .map(|claim| (claim.owner.map(|owner| self.worker_name(owner)), claim.generation))
            .collect();
        format!("{members:?} {claims:?}")
    }
}
