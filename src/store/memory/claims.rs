//! Claims of records in claimed mode.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{outbox::Outbox, store::MemoryStore};
use crate::{
    instance::{InstanceId, InstanceState},
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Status},
    rules::claim::Reading,
    store::{ClaimEnd, ClaimOutcome, ClaimStore, Claimed, Claiming, Completed, Mode, Source, StoreError},
};

#[async_trait]
impl ClaimStore for MemoryStore {
    fn has_one_writer(&self) -> bool {
        false
    }

    async fn enter(&self, wanted: Mode) -> Result<Mode, StoreError> {
        self.call("enter", |outbox, _| {
            let is_used = outbox.instances.values().map(|row| row.state).any(InstanceState::is_live);
            if wanted == Mode::Claimed && !is_used && outbox.lanes.is_empty() {
                outbox.mode = Mode::Claimed;
            }
            outbox.mode
        })
        .await
    }

    async fn claim_records(&self, claim: Claiming) -> Result<Claimed, StoreError> {
        self.call("claim records", |outbox, now| {
            let is_wanted = |record: &Arc<Record>| claim.handlers.include(&record.delivery.handler);
            let found: Vec<Arc<Record>> = match claim.source {
                Source::Pending(Reading::Ids { from }) => {
                    let pending = outbox.records.scan(PartitionSet::ALL, from..RecordId::MAX, now);
                    pending.filter(is_wanted).take(claim.limit).collect()
                }
                Source::Pending(Reading::Index { from }) => {
                    let partitions = Partition::all().filter(|partition| *partition >= from);
                    let pending = partitions.flat_map(|partition| outbox.records.pending(partition, now));
                    pending.filter(is_wanted).take(claim.limit).collect()
                }
                Source::Due | Source::Suspect => {
                    let due = Partition::all().flat_map(|partition| outbox.records.due(partition, now));
                    let is_free = |record: &Arc<Record>| {
                        let suspected = outbox.records.get(record.delivery.id);
                        let suspected = suspected.is_some_and(|row| row.lock_crashes.is_some());
                        let wanted = suspected == (claim.source == Source::Suspect);
                        wanted && !outbox.cancelling.contains(&record.delivery.id)
                    };
                    due.filter(is_wanted).filter(is_free).take(claim.limit).collect()
                }
            };
            let (selected, is_full) = (found.len(), found.len() >= claim.limit);
            let mut claimed = Claimed { records: found, selected, is_full, crashes: 0 };
            for record in &mut claimed.records {
                let id = record.delivery.id;
                Arc::make_mut(record).delivery.generation =
                    outbox.records.claim(id, claim.owner, claim.lease, now);
            }
            if let (Source::Suspect, Some(first)) = (claim.source, claimed.records.first()) {
                let row = outbox.records.get(first.delivery.id);
                claimed.crashes = row.and_then(|row| row.lock_crashes).unwrap_or_default();
            }
            claimed.records.sort_unstable_by_key(|record| record.delivery.id);
            claimed
        })
        .await
    }

    async fn renew_claims(
        &self,
        owner: InstanceId,
        lease: Duration,
        records: &[RecordId],
    ) -> Result<Vec<RecordId>, StoreError> {
        self.call("renew claims", |outbox, now| {
            let mut lost = Vec::new();
            for id in records {
                let held = outbox.records.get(*id).is_some_and(|row| row.lock_owner == Some(owner));
                match held {
                    true => outbox.records.renew(*id, owner, lease, now),
                    false => lost.push(*id),
                }
            }
            lost
        })
        .await
    }

    async fn settle_claims(&self, owner: InstanceId, outcomes: &[ClaimOutcome]) -> Result<usize, StoreError> {
        let completed = self.completed;
        self.call("settle", |outbox, now| {
            let written = outcomes.iter().filter(|outcome| outbox.end_claim(owner, outcome, completed, now));
            written.count()
        })
        .await
    }
}

impl Outbox {
    /// Whether this claim of the record is the last, and has not ended.
    pub(super) fn is_claimed(&self, id: RecordId, owner: InstanceId, token: i64) -> bool {
        self.records.get(id).is_some_and(|row| row.lock_owner == Some(owner) && row.lock_token == token)
    }

    /// Writes the outcome of a claim. Returns false if the record has a newer owner.
    fn end_claim(
        &mut self,
        owner: InstanceId,
        ClaimOutcome { id, token, end }: &ClaimOutcome,
        completed: Completed,
        now: Instant,
    ) -> bool {
        if !self.is_claimed(*id, owner, *token) {
            return false;
        }
        let failures = self.records.get(*id).map_or(0, |row| row.attempts);
        let written = match end {
            ClaimEnd::Complete => self.complete(*id, failures, completed, now),
            ClaimEnd::Release => self.records.change(*id, |row| {
                row.status = Status::Pending;
                row.next_attempt = None;
            }),
            ClaimEnd::Retry { delay, error, counted } => {
                self.retry(*id, failures, (*delay, *counted), error, now)
            }
            ClaimEnd::Fail { error, counted } => self.fail(*id, failures, *counted, error),
        };
        self.records.end_claim(*id);
        written
    }
}
