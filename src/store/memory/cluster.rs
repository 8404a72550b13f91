//! Members and claims.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    outbox::{InstanceRow, Outbox},
    store::MemoryStore,
};
use crate::{
    instance::{Claim, ClusterView, Generation, InstanceId, InstanceState, Member},
    partition::Partition,
    rules::horizon::Server,
    store::{ClusterStore, ErrorClass, NewInstance, StoreError},
};

#[async_trait]
impl ClusterStore for MemoryStore {
    async fn server(&self) -> Result<Server, StoreError> {
        self.call("server", |outbox, _| outbox.server()).await
    }

    async fn join(&self, instance: &NewInstance) -> Result<(), StoreError> {
        let joined = self.call("join", |outbox, now| {
            let new = !outbox.instances.contains_key(&instance.id);
            if new {
                let row = InstanceRow {
                    name: instance.name.clone(),
                    version: instance.version.clone(),
                    state: InstanceState::Active,
                    beat: 0,
                    started: now,
                    last_beat: now,
                };
                outbox.instances.insert(instance.id, row);
                outbox.write_state(instance.id, InstanceState::Active);
                outbox.cluster_changes += 1;
                outbox.fences.extend((0..instance.fence_rows).map(|slot| ((instance.id, slot), 0)));
            }
            new
        });
        match joined.await? {
            true => Ok(()),
            false => Err(StoreError::new("join", ErrorClass::Duplicate, "there is such an instance already")),
        }
    }

    async fn beat(&self, me: InstanceId) -> Result<Option<ClusterView>, StoreError> {
        self.call("beat", |outbox, now| {
            let row = outbox.instances.get_mut(&me).filter(|row| row.state.is_live())?;
            row.beat += 1;
            row.last_beat = now;
            Some(view(outbox))
        })
        .await
    }

    async fn view(&self) -> Result<ClusterView, StoreError> {
        self.call("view", |outbox, _| view(outbox)).await
    }

    async fn evict(&self, id: InstanceId, beat: Option<i64>) -> Result<bool, StoreError> {
        self.call("evict", |outbox, _| {
            let Some(row) = outbox.instances.get(&id) else { return false };
            if !row.state.is_live() || beat.is_some_and(|seen| seen != row.beat) {
                return false;
            }
            outbox.write_state(id, InstanceState::Dead);
            outbox.cluster_changes += 1;
            outbox.close_fences(id);
            if beat.is_some() {
                outbox.count_crash(id);
            }
            true
        })
        .await
    }

    async fn claim(
        &self,
        me: InstanceId,
        wanted: &[(Partition, Generation)],
    ) -> Result<Vec<(Partition, Generation)>, StoreError> {
        self.call("claim", |outbox, now| {
            let active = outbox.instances.get(&me).is_some_and(|row| row.state == InstanceState::Active);
            for (partition, seen) in wanted.iter().filter(|_| active) {
                let claim = outbox.claims[partition.index()];
                let free = !claim.owner.is_some_and(|owner| outbox.is_live(owner));
                if free && claim.generation == *seen {
                    let claim = Claim { owner: Some(me), generation: Generation(seen.0 + 1) };
                    outbox.write_claim(*partition, claim);
                    outbox.claimed[partition.index()] = Some(now);
                }
            }
            let owned =
                owned(outbox, me).map(|partition| (partition, outbox.claims[partition.index()].generation));
            owned.collect()
        })
        .await
    }

    async fn release(&self, me: InstanceId, claims: &[(Partition, Generation)]) -> Result<usize, StoreError> {
        self.call("release", |outbox, _| {
            outbox.cluster_changes += 1;
            release(outbox, me, claims)
        })
        .await
    }

    async fn drain(&self, id: InstanceId) -> Result<bool, StoreError> {
        self.call("drain", |outbox, _| {
            outbox.cluster_changes += 1;
            let active = outbox.instances.get(&id).is_some_and(|row| row.state == InstanceState::Active);
            if active {
                outbox.write_state(id, InstanceState::Draining);
            }
            active
        })
        .await
    }

    async fn leave(&self, me: InstanceId) -> Result<(), StoreError> {
        self.call("leave", |outbox, _| {
            outbox.cluster_changes += 1;
            if outbox.is_live(me) {
                outbox.write_state(me, InstanceState::Stopped);
            }
            outbox.close_fences(me);
            let given: Vec<Partition> = owned(outbox, me).collect();
            given.into_iter().for_each(|partition| give_up(outbox, partition));
        })
        .await
    }

    async fn purge_instances(&self, silent_for: Duration) -> Result<usize, StoreError> {
        self.call("purge instances", |outbox, now| purge_instances(outbox, silent_for, now)).await
    }
}

fn view(outbox: &Outbox) -> ClusterView {
    let live = outbox.instances.iter().filter(|(_, row)| row.state.is_live());
    let members = live.map(|(id, row)| Member { id: *id, state: row.state, beat: row.beat });
    ClusterView { members: members.collect(), claims: outbox.claims }
}

fn owned(outbox: &Outbox, me: InstanceId) -> impl Iterator<Item = Partition> {
    Partition::all().filter(move |partition| outbox.claims[partition.index()].owner == Some(me))
}

fn release(outbox: &mut Outbox, me: InstanceId, claims: &[(Partition, Generation)]) -> usize {
    let held = |(partition, generation): &&(Partition, Generation)| {
        let claim = &outbox.claims[partition.index()];
        claim.owner == Some(me) && claim.generation == *generation
    };
    let given: Vec<Partition> = claims.iter().filter(held).map(|(partition, _)| *partition).collect();
    given.iter().for_each(|partition| give_up(outbox, *partition));
    given.len()
}

fn give_up(outbox: &mut Outbox, partition: Partition) {
    let claim = outbox.claims[partition.index()];
    outbox.write_claim(partition, Claim { owner: None, ..claim });
}

fn purge_instances(outbox: &mut Outbox, silent_for: Duration, now: Instant) -> usize {
    let before = outbox.instances.len();
    let Outbox { instances, fences, claims, .. } = outbox;
    instances.retain(|id, row| {
        row.state.is_live()
            || now.saturating_duration_since(row.last_beat) < silent_for
            || claims.iter().any(|claim| claim.owner == Some(*id))
    });
    fences.retain(|(id, _), _| instances.contains_key(id));
    before - instances.len()
}
