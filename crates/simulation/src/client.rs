//! One way to the database: the faults of its calls, and the writes it has made.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use keylane::{
    admin::{InstanceState, Status as RowStatus},
    inner::conditions::{Conditions, Passage, Written},
    memory::Fault,
};
use keylane_checker::{Status, What};
use tokio::time::Instant;

use crate::{
    node::{Identity, lock},
    shared::Shared,
};

/// A client of the database.
#[derive(Debug)]
pub(crate) struct Client {
    world: Arc<Shared>,
    /// The node of the client, if any. Never changes.
    node: Option<usize>,
    /// The identity of the workers that use the client, if any. Never changes.
    identity: Option<Arc<Identity>>,
    is_operator: bool,
    dice: Mutex<Rng>,
    /// The calls whose last try was in conflict with another transaction.
    in_conflict: Mutex<BTreeSet<&'static str>>,
}

impl Client {
    pub(crate) fn new(
        world: &Arc<Shared>,
        node: Option<usize>,
        identity: Option<Arc<Identity>>,
        dice: Rng,
    ) -> Arc<Self> {
        let (world, dice) = (Arc::clone(world), Mutex::new(dice));
        Arc::new(Self { world, node, identity, is_operator: false, dice, in_conflict: Mutex::default() })
    }

    /// The client of a person, whose changes are repairs.
    pub(crate) fn of_operator(world: &Arc<Shared>, dice: Rng) -> Arc<Self> {
        let (world, dice) = (Arc::clone(world), Mutex::new(dice));
        let (node, identity, in_conflict) = (None, None, Mutex::default());
        Arc::new(Self { world, node, identity, is_operator: true, dice, in_conflict })
    }

    fn saw(&self, what: &str) {
        self.world.recorder.note("database", What::Saw { what: what.to_owned() });
    }

    /// Lets a conflict strike only writes of the workers, and none two times in a row: a transaction in conflict with
    /// others again and again fails as a handler that fails.
    fn conflict(&self, call: &'static str, passage: &mut Passage) {
        let mut in_conflict = lock(&self.in_conflict);
        let struck = in_conflict.remove(call);
        if passage.fault != Some(Fault::Conflict) {
            if struck && passage.fault.is_none() && call == "settle" {
                self.saw("deadlock retry");
            }
        } else if struck || !matches!(call, "settle" | "commit" | "complete" | "claim" | "release") {
            passage.fault = Some(Fault::NotApplied);
        } else {
            in_conflict.insert(call);
        }
    }
}

impl Conditions for Client {
    fn meet(&self, call: &'static str) -> Passage {
        if call == "beat"
            && let Some(identity) = &self.identity
        {
            identity.beat_sent(self.world.time.now());
        }
        match call {
            "scan of others" => self.saw("walk back without what was seen"),
            "fetch of one partition" => self.saw("hot partition"),
            _ => {}
        }
        let mut dice = lock(&self.dice);
        let (usual, limit) = (self.world.latency, self.world.call_timeout);
        let weather = lock(&self.world.weather);
        let mut passage = weather.passage(self.node, usual, limit, &mut dice);
        drop(weather);
        self.conflict(call, &mut passage);
        passage
    }

    fn now(&self) -> Instant {
        self.world.time.of_database()
    }

    fn wrote(&self, mut written: Vec<Written>) {
        if let Some(identity) = &self.identity {
            // In claimed mode nothing else tells the identity of a process.
            let owner = |written: &Written| match written {
                Written::RecordClaimed { owner, .. } => Some(owner.to_string()),
                _ => None,
            };
            written.iter().find_map(owner).into_iter().for_each(|owner| identity.is_now(owner));
        }
        let by = self.identity.as_ref().map(|identity| identity.instance());
        // All writes of a transaction come at once. A history has them in the order of ids.
        written.sort_by_key(|written| match written {
            Written::Stored { id, .. }
            | Written::Changed { id, .. }
            | Written::RecordClaimed { id, .. }
            | Written::RecordUnclaimed { id, .. } => *id,
            Written::Claimed { .. } | Written::Member { .. } | Written::Refused { .. } => 0,
        });
        for written in written {
            if let (Written::Changed { id, status, .. }, true) = (&written, self.is_operator) {
                let id = *id;
                let repaired = if status.is_some() { What::Retried { id } } else { What::Discarded { id } };
                self.world.recorder.note("operator", repaired);
            }
            let now = self.world.time.now();
            self.world.recorder.note("database", told(written, by.clone(), now));
        }
    }
}

fn told(written: Written, by: Option<String>, now: u64) -> What {
    match written {
        Written::Stored { id, event_id, lane, status } => What::Stored {
            id,
            event: event_id,
            handler: lane.handler.to_string(),
            key: lane.key.to_string(),
            partition: lane.partition.index() as u16,
            status: status_of(status),
        },
        Written::Changed { id, status, attempts } => {
            What::Changed { id, status: status.map_or(Status::Gone, status_of), attempts, by }
        }
        Written::Claimed { partition, owner, generation } => {
            let (partition, generation) = (partition.index() as u16, generation.0);
            match owner {
                Some(owner) => What::Claimed { partition, instance: owner.to_string(), generation },
                None => What::Unclaimed { partition, generation },
            }
        }
        Written::RecordClaimed { id, owner, token, left } => What::RecordClaimed {
            id,
            instance: owner.to_string(),
            token: token.0,
            until: now + left.as_nanos() as u64,
        },
        Written::RecordUnclaimed { id, token } => What::RecordUnclaimed { id, token: token.0 },
        Written::Refused { .. } => What::Saw { what: "fenced outcome refused".to_owned() },
        Written::Member { instance, state } => {
            let instance = instance.to_string();
            match state {
                InstanceState::Active => What::Joined { instance },
                InstanceState::Draining => What::Draining { instance },
                InstanceState::Dead => What::Evicted { instance },
                _ => What::Left { instance },
            }
        }
    }
}

fn status_of(status: RowStatus) -> Status {
    match status {
        RowStatus::Pending => Status::Pending,
        RowStatus::Delayed => Status::Delayed,
        RowStatus::Held => Status::Held,
        RowStatus::Completed => Status::Completed,
        _ => Status::Failed,
    }
}

/// The latency of most networks.
pub(crate) const USUAL: Duration = Duration::from_millis(2);
