//! The shares of the members: takeovers, balance, movement.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Judge,
    line::{Line, violation},
    members::Membership,
    names::Name,
};
use crate::{Invariant, Takeover, Violation};

/// The number of partitions.
const PARTITIONS: u16 = 256;

/// The state of the members' shares.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The time of the last change of the members.
    changed: u64,
    /// The time of the last crash. The crashed member may have been about to claim any partition.
    crashed: u64,
    /// Partitions without a live owner, since when.
    unowned: Unowned,
    /// Whether shares were found equal and nothing has changed since.
    stable: bool,
    /// The owners at the last equal shares, if only members have come and gone since; and the members then.
    before: Option<BTreeMap<u16, Name>>,
    others: BTreeSet<Name>,
    claims: u32,
    begun: bool,
}

/// Partitions without an owner, the longest first.
#[derive(Debug, Default)]
struct Unowned {
    since: BTreeMap<u16, u64>,
    order: BTreeSet<(u64, u16)>,
}

impl Unowned {
    fn insert(&mut self, partition: u16, at: u64) {
        let since = *self.since.entry(partition).or_insert(at);
        self.order.insert((since, partition));
    }

    fn remove(&mut self, partition: u16) -> bool {
        let since = self.since.remove(&partition);
        since.is_some_and(|since| self.order.remove(&(since, partition)))
    }
}

impl Judge {
    fn healthy(&self) -> Vec<Name> {
        let active = self.members.live().filter(|(_, member)| member.state == Membership::Active);
        let active = active.map(|(name, _)| name).filter(|name| !self.calls.crashes.contains_key(name));
        active.filter(|name| self.may_have_a_lease(*name)).collect()
    }

    fn owners(&self) -> BTreeMap<u16, Name> {
        let held = self.ownership.iter().filter(|(_, claim)| claim.released.is_none());
        let held = held.filter(|(_, claim)| self.members.is_live(claim.instance));
        let held = held.filter(|(_, claim)| !self.calls.crashes.contains_key(&claim.instance));
        held.map(|(partition, claim)| (partition, claim.instance)).collect()
    }

    /// A member has joined, leaves, or has crashed.
    pub(super) fn members_changed(&mut self, instance: Name, at: u64) {
        if self.expect.takeover.is_none() {
            return;
        }
        self.shares.changed = at;
        self.shares.stable = false;
        self.shares.begun = true;
        self.shares.others.insert(instance);
        self.count_unowned(at);
    }

    pub(super) fn member_crashed(&mut self, instance: Name, at: u64) {
        self.shares.crashed = at;
        self.members_changed(instance, at);
    }

    /// Finds the partitions without a live owner.
    pub(super) fn count_unowned(&mut self, at: u64) {
        let owners = self.owners();
        for partition in 0..PARTITIONS {
            if owners.contains_key(&partition) {
                self.shares.unowned.remove(partition);
            } else {
                self.shares.unowned.insert(partition, at);
            }
        }
    }

    /// A fault begins or ends: moves need not be minimal now.
    pub(super) fn shares_disturbed(&mut self) {
        let shares = &mut self.shares;
        shares.stable = false;
        shares.before = None;
    }

    /// A partition has another owner, or none.
    pub(super) fn share_changed(
        &mut self,
        partition: u16,
        owner: Option<Name>,
        line: &Line,
    ) -> Result<(), Violation> {
        if self.expect.takeover.is_none() {
            return Ok(());
        }
        if owner.is_none() {
            self.shares.unowned.insert(partition, line.event.at);
        } else {
            self.shares.claims += 1;
            if self.shares.unowned.remove(partition) {
                self.count(Invariant::Takeover);
            }
        }
        if self.shares.stable {
            let text =
                format!("partition {partition} moves, though shares are equal and nobody came or went");
            return Err(violation(Invariant::Movement, text, [Some(line)]));
        }
        Ok(())
    }

    /// Judges what must have happened by now.
    pub(super) fn judge_shares(&mut self, now: u64, line: &Line) -> Result<(), Violation> {
        let Some(Takeover { bound, settled }) = self.expect.takeover else { return Ok(()) };
        let shares = &self.shares;
        if self.faults.active > 0 || shares.stable || !shares.begun {
            return Ok(());
        }
        let calm = self.faults.calm_since.max(shares.crashed);
        let longest = shares.unowned.order.first().copied();
        let late = longest.filter(|(since, _)| calm.max(*since).saturating_add(bound) < now);
        if let Some((since, partition)) = late {
            // Members that have crashed since then cannot take over.
            let healthy = self.healthy();
            let since_when =
                healthy.iter().filter_map(|name| self.members.end(*name)).map(|line| line.event.at);
            let first = since_when.min().unwrap_or(u64::MAX);
            if !healthy.is_empty() && calm.max(since).max(first).saturating_add(bound) < now {
                let text = format!("partition {partition} has had no owner for {} ns", now - since);
                let claim = self.ownership.get(partition);
                let shown = claim.map(|claim| claim.released.as_ref().unwrap_or(&claim.line));
                let crash = claim.and_then(|claim| self.calls.crashes.get(&claim.instance));
                return Err(violation(Invariant::Takeover, text, [shown, crash, Some(line)]));
            }
        }
        if calm.max(self.shares.changed).saturating_add(settled) < now {
            return self.judge_balance(line);
        }
        Ok(())
    }

    fn judge_balance(&mut self, line: &Line) -> Result<(), Violation> {
        let (healthy, owners) = (self.healthy(), self.owners());
        if healthy.is_empty() {
            return Ok(());
        }
        self.count(Invariant::Takeover);
        self.count(Invariant::Balance);
        let mut held: BTreeMap<Name, usize> = healthy.iter().map(|name| (*name, 0)).collect();
        owners.values().for_each(|owner| *held.entry(*owner).or_default() += 1);
        let (least, most) = (held.values().min().copied(), held.values().max().copied());
        let draining = owners.values().any(|owner| !healthy.contains(owner));
        if owners.len() < usize::from(PARTITIONS) || draining || most.unwrap_or(0) > least.unwrap_or(0) + 1 {
            let shares: Vec<String> =
                held.iter().map(|(name, share)| format!("{} {share}", self.names.text(*name))).collect();
            let text = format!("shares are not equal in time: {}", shares.join(", "));
            let members = healthy.iter().map(|name| self.members.end(*name));
            return Err(violation(Invariant::Balance, text, members.chain([Some(line)])));
        }
        self.judge_movement(&healthy, &owners, line)?;
        let shares = &mut self.shares;
        shares.stable = true;
        shares.before = Some(owners);
        (shares.claims, shares.others) = (0, BTreeSet::new());
        Ok(())
    }

    /// If one member came or went since shares were equal, judges that the smallest possible number of
    /// partitions has moved.
    fn judge_movement(
        &mut self,
        healthy: &[Name],
        owners: &BTreeMap<u16, Name>,
        line: &Line,
    ) -> Result<(), Violation> {
        let shares = &self.shares;
        let Some(before) = shares.before.as_ref().filter(|_| shares.others.len() == 1) else { return Ok(()) };
        let mut held: Vec<usize> =
            healthy.iter().map(|name| before.values().filter(|owner| *owner == name).count()).collect();
        held.sort_by_key(|count| Reverse(*count));
        let (base, larger) = (usize::from(PARTITIONS) / held.len(), usize::from(PARTITIONS) % held.len());
        let kept: usize = held
            .iter()
            .enumerate()
            .map(|(rank, count)| (*count).min(base + usize::from(rank < larger)))
            .sum();
        let (least, claims) = (usize::from(PARTITIONS) - kept, shares.claims as usize);
        let moved = owners.iter().filter(|(partition, owner)| before.get(*partition) != Some(owner)).count();
        let who = shares.others.first().and_then(|name| self.members.end(*name)).cloned();
        self.count(Invariant::Movement);
        if claims > least {
            let text = format!("{claims} claims, {moved} partitions moved, {least} had to");
            return Err(violation(Invariant::Movement, text, [who.as_ref(), Some(line)]));
        }
        self.reach("movement");
        Ok(())
    }
}
