//! Members: instances that have joined and not left.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Judge,
    forgets::Undo,
    line::{Line, violation},
    names::Name,
};
use crate::{Invariant, Violation, What};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    Active,
    Draining,
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) state: Membership,
    line: Line,
}

/// All members, by the number of their name.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: BTreeMap<Name, Member>,
}

impl Members {
    pub(super) fn is_live(&self, instance: Name) -> bool {
        self.all.get(&instance).is_some_and(|member| member.state != Membership::Gone)
    }

    pub(super) fn is_active(&self, instance: Name) -> bool {
        self.all.get(&instance).is_some_and(|member| member.state == Membership::Active)
    }

    pub(super) fn end(&self, instance: Name) -> Option<&Line> {
        self.all.get(&instance).map(|member| &member.line)
    }

    /// All instances that have ever joined.
    pub(super) fn all(&self) -> impl Iterator<Item = Name> {
        self.all.keys().copied()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (Name, &Member)> {
        let live = self.all.iter().filter(|(_, member)| member.state != Membership::Gone);
        live.map(|(name, member)| (*name, member))
    }

    pub(super) fn restore(&mut self, instance: Name, before: Option<Member>) {
        match before {
            Some(before) => self.all.insert(instance, before),
            None => self.all.remove(&instance),
        };
    }
}

impl Judge {
    pub(super) fn of_members(&mut self, line: &Line) -> Result<(), Violation> {
        let (instance, state) = match &line.event.what {
            What::Joined { instance } => (instance, Membership::Active),
            What::Draining { instance } => (instance, Membership::Draining),
            What::Left { instance } => (instance, Membership::Gone),
            What::Evicted { instance } => {
                self.reach("eviction");
                (instance, Membership::Gone)
            }
            _ => return Ok(()),
        };
        let instance = self.names.of(instance);
        self.count(Invariant::OneOwner);
        let known = self.members.all.get(&instance).map(|member| member.state);
        let possible = match state {
            Membership::Active => known.is_none(),
            Membership::Draining | Membership::Gone => known.is_some_and(|state| state != Membership::Gone),
        };
        if !possible {
            let text = format!("{} joins, drains or ends twice, or never joined", self.names.text(instance));
            return Err(violation(Invariant::OneOwner, text, [self.members.end(instance), Some(line)]));
        }
        let member = Member { state, line: Arc::clone(line) };
        let before = self.members.all.insert(instance, member);
        self.forgets.note(|| Undo::Member { instance, before });
        if state == Membership::Gone {
            let owned = self
                .ownership
                .iter()
                .filter(|(_, claim)| claim.instance == instance && claim.released.is_none());
            for partition in owned.map(|(partition, _)| partition).collect::<Vec<_>>() {
                self.release(partition, line);
            }
        }
        self.members_changed(instance, line.event.at);
        Ok(())
    }
}
