//! The owners of partitions.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Judge,
    forgets::Undo,
    line::{Line, violation},
    names::Name,
};
use crate::{Called, Invariant, Violation, What};

/// The last claim of a partition.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) instance: Name,
    pub(super) generation: i64,
    pub(super) line: Line,
    /// The line that ended the claim; none while it holds.
    pub(super) released: Option<Line>,
}

impl Claim {
    /// The time from which on the owner may know that the claim is over; none while it holds.
    fn over(&self) -> Option<u64> {
        self.released.as_ref().map(|line| line.event.at)
    }
}

#[derive(Debug, Default)]
pub(super) struct Ownership {
    claims: BTreeMap<u16, Claim>,
}

impl Ownership {
    pub(super) fn get(&self, partition: u16) -> Option<&Claim> {
        self.claims.get(&partition)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Claim)> {
        self.claims.iter().map(|(partition, claim)| (*partition, claim))
    }

    /// Restores the claim before.
    pub(super) fn restore(&mut self, partition: u16, before: Option<Claim>) {
        match before {
            Some(before) => self.claims.insert(partition, before),
            None => self.claims.remove(&partition),
        };
    }
}

/// The right of an instance to call a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Owner,
    /// The instance has lost the partition, which a fault excuses; or it has joined on an earlier server and
    /// does not know of the failover. Such calls end with the lease, and their outcomes are refused.
    Former,
}

impl Judge {
    pub(super) fn of_cluster(&mut self, line: &Line) -> Result<(), Violation> {
        match &line.event.what {
            What::Claimed { partition, instance, generation } => {
                let instance = self.names.of(instance);
                self.claimed(*partition, instance, *generation, line)
            }
            What::Unclaimed { partition, generation } => self.unclaimed(*partition, *generation, line),
            _ => self.of_members(line),
        }
    }

    fn claimed(
        &mut self,
        partition: u16,
        instance: Name,
        generation: i64,
        line: &Line,
    ) -> Result<(), Violation> {
        self.count(Invariant::OneOwner);
        let before = self.ownership.claims.get(&partition);
        let wanted = before.map_or(1, |claim| claim.generation + 1);
        let shown = [before.map(|claim| &claim.line), Some(line)];
        if generation != wanted {
            let text =
                format!("partition {partition} is claimed under generation {generation}, not {wanted}");
            return Err(violation(Invariant::OneOwner, text, shown));
        }
        let held = before.filter(|claim| claim.released.is_none() && self.members.is_live(claim.instance));
        if let Some(claim) = held {
            let text =
                format!("partition {partition} is claimed while {} owns it", self.names.text(claim.instance));
            return Err(violation(Invariant::OneOwner, text, shown));
        }
        if !self.members.is_active(instance) {
            let text = format!("{} claims and is no active member", self.names.text(instance));
            return Err(violation(Invariant::OneOwner, text, [self.members.end(instance), Some(line)]));
        }
        if before.is_some_and(|claim| claim.instance != instance) {
            self.reach("takeover");
        }
        let claim = Claim { instance, generation, line: Arc::clone(line), released: None };
        let before = self.ownership.claims.insert(partition, claim);
        self.forgets.note(|| Undo::Claim { partition, before });
        self.start_afresh(partition);
        self.share_changed(partition, Some(instance), line)
    }

    fn unclaimed(&mut self, partition: u16, generation: i64, line: &Line) -> Result<(), Violation> {
        self.count(Invariant::OneOwner);
        let Some(claim) =
            self.ownership.claims.get(&partition).filter(|claim| claim.released.is_none()).cloned()
        else {
            return Ok(());
        };
        if claim.generation != generation {
            let text = format!("generation {generation} of partition {partition} ends, which is over");
            return Err(violation(Invariant::OneOwner, text, [Some(&claim.line), Some(line)]));
        }
        self.release(partition, line);
        self.share_changed(partition, None, line)
    }

    /// Ends the claim of a partition.
    pub(super) fn release(&mut self, partition: u16, line: &Line) {
        let Some(claim) = self.ownership.claims.get_mut(&partition) else { return };
        let before = Some(claim.clone());
        claim.released = Some(Arc::clone(line));
        self.forgets.note(|| Undo::Claim { partition, before });
    }

    /// The right of an instance to a call that begins. If the history has no claims, the right follows from
    /// the generations of the calls.
    pub(super) fn standing(
        &mut self,
        called: &Called,
        instance: Name,
        line: &Line,
    ) -> Result<Standing, Violation> {
        if self.expect.claimed && self.has_claimed(called, instance) {
            self.count(Invariant::Lease);
            return Ok(Standing::Owner);
        }
        if self.forgets.is_stranger(instance) {
            self.reach("call of a stranger");
            return Ok(Standing::Former);
        }
        if self.expect.claimed {
            return Err(self.call_without_claim(called, instance, line));
        }
        // The usual case comes first, because it costs one look-up.
        if self.still_owns(called, instance) {
            self.count(Invariant::OneOwner);
            return Ok(Standing::Owner);
        }
        let known = self.ownership.claims.get(&called.partition).cloned();
        if !self.expect.ownership && known.as_ref().is_none_or(|claim| claim.generation < called.generation) {
            let claim =
                Claim { instance, generation: called.generation, line: Arc::clone(line), released: None };
            self.ownership.claims.insert(called.partition, claim);
            return Ok(Standing::Owner);
        }
        self.count(Invariant::OneOwner);
        let shown = [known.as_ref().map(|claim| &claim.line), Some(line)];
        let own = known
            .as_ref()
            .is_some_and(|claim| claim.generation == called.generation && claim.instance == instance);
        let possible = own || known.as_ref().is_some_and(|claim| claim.generation > called.generation);
        if !possible {
            let name = self.names.text(instance);
            let (generation, partition) = (called.generation, called.partition);
            let text = format!(
                "{name} calls under generation {generation} of partition {partition}, which it has not"
            );
            return Err(violation(Invariant::OneOwner, text, shown));
        }
        let lost =
            known.as_ref().and_then(|claim| if own { claim.over() } else { Some(claim.line.event.at) });
        let Some(lost) = lost else { return Ok(Standing::Owner) };
        self.reach("call of a former owner");
        self.count(Invariant::Lease);
        if self.faults.excuse(instance, lost) || self.was_kept_from_handing_over(instance) {
            return Ok(Standing::Former);
        }
        let text = format!("{} calls and has lost the partition, without a fault", self.names.text(instance));
        let released = known.as_ref().and_then(|claim| claim.released.as_ref());
        Err(violation(Invariant::Lease, text, shown.into_iter().chain([released])))
    }

    /// Whether the instance of the call still owns the partition, so that the end of the call counts.
    pub(super) fn still_owns(&self, called: &Called, instance: Name) -> bool {
        if self.expect.claimed {
            return self.has_claimed(called, instance);
        }
        let claim = self.ownership.claims.get(&called.partition);
        claim.is_some_and(|claim| {
            claim.generation == called.generation && claim.instance == instance && claim.released.is_none()
        })
    }
}
