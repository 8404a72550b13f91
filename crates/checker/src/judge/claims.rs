//! Claimed mode: the owners of records.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Judge,
    forgets::Undo,
    line::{Line, violation},
    names::Name,
    records::State,
};
use crate::{Called, Invariant, Violation, What};

/// The last claim of a record.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    instance: Name,
    token: i64,
    /// The end of its lease.
    until: u64,
    /// Whether the lease of the claim before has run out.
    after_lapse: bool,
    line: Line,
    /// The line that ended the claim; none while it holds.
    ended: Option<Line>,
}

impl Claim {
    fn is(&self, instance: Name, token: i64) -> bool {
        self.instance == instance && self.token == token && self.ended.is_none()
    }
}

/// The last claim of each record.
#[derive(Debug, Default)]
pub(super) struct Claims {
    all: BTreeMap<i64, Claim>,
}

impl Claims {
    /// The instances that have claimed a record.
    pub(super) fn instances(&self) -> impl Iterator<Item = Name> {
        self.all.values().map(|claim| claim.instance)
    }

    /// Whether the owner itself has ended the claim before.
    pub(super) fn is_handed_over(&self, id: i64) -> bool {
        self.all.get(&id).is_some_and(|claim| claim.token > 1 && !claim.after_lapse)
    }

    /// Restores the claim before.
    pub(super) fn restore(&mut self, id: i64, before: Option<Claim>) {
        match before {
            Some(before) => self.all.insert(id, before),
            None => self.all.remove(&id),
        };
    }
}

impl Judge {
    pub(super) fn of_claims(&mut self, line: &Line) -> Result<(), Violation> {
        self.count(Invariant::OneOwner);
        match &line.event.what {
            What::RecordClaimed { id, instance, token, until } => {
                let instance = self.names.of(instance);
                self.record_claimed(*id, (instance, *token, *until), line)
            }
            What::RecordUnclaimed { id, token } => self.record_unclaimed(*id, *token, line),
            _ => Ok(()),
        }
    }

    fn record_claimed(
        &mut self,
        id: i64,
        (instance, token, until): (Name, i64, u64),
        line: &Line,
    ) -> Result<(), Violation> {
        let before = self.claims.all.get(&id).cloned();
        let refused = |why: &str| {
            let text = format!("record {id} is claimed under token {token}, and {why}");
            Err(violation(Invariant::OneOwner, text, [before.as_ref().map(|claim| &claim.line), Some(line)]))
        };
        if self.forgets.is_stranger(instance) {
            return refused("its owner belongs to an earlier server");
        }
        if self.records.get(id).is_none() {
            return refused("it has its end, or was never stored");
        }
        let renewed = before.as_ref().filter(|claim| claim.is(instance, token));
        let claim = match renewed {
            Some(claim) => Claim { until, ..claim.clone() },
            None => {
                let after_lapse = before.as_ref().is_some_and(|claim| claim.ended.is_none());
                let line = Arc::clone(line);
                Claim { instance, token, until, after_lapse, line, ended: None }
            }
        };
        if renewed.is_none() {
            if token != before.as_ref().map_or(1, |claim| claim.token + 1) {
                return refused("tokens grow by one");
            }
            if before.as_ref().is_some_and(|claim| claim.ended.is_none() && line.event.at < claim.until) {
                return refused("the lease of another claim has not run out");
            }
            if claim.after_lapse {
                self.reach("claim after a lapse");
            }
            self.start_again(id, claim.after_lapse);
        }
        self.claims.all.insert(id, claim);
        self.forgets.note(|| Undo::RecordClaim { id, before });
        Ok(())
    }

    /// The new owner does not know of a success that is not durable.
    fn start_again(&mut self, id: i64, after_lapse: bool) {
        let Some(record) = self.records.get_mut(id) else { return };
        // A lease that runs out counts as a crash.
        record.crashes += u32::from(after_lapse);
        if record.state == State::Done {
            record.state = State::Redo;
            let record = record.clone();
            self.enter_lane(&record);
        }
    }

    fn record_unclaimed(&mut self, id: i64, token: i64, line: &Line) -> Result<(), Violation> {
        let Some(claim) = self.claims.all.get_mut(&id) else { return Ok(()) };
        if claim.token != token || claim.ended.is_some() {
            let text = format!("claim {token} of record {id} ends, which is over");
            return Err(violation(Invariant::OneOwner, text, [Some(&claim.line), Some(line)]));
        }
        let before = Some(claim.clone());
        claim.ended = Some(Arc::clone(line));
        self.forgets.note(|| Undo::RecordClaim { id, before });
        Ok(())
    }

    /// A call that begins after the end of its claim, or has none.
    pub(super) fn call_without_claim(&self, called: &Called, instance: Name, line: &Line) -> Violation {
        let claim = self.claims.all.get(&called.id);
        let text = format!("{} calls record {} without a claim", self.names.text(instance), called.id);
        let shown =
            [claim.map(|claim| &claim.line), claim.and_then(|claim| claim.ended.as_ref()), Some(line)];
        violation(Invariant::Lease, text, shown)
    }

    /// Whether the claim of the call holds.
    pub(super) fn has_claimed(&self, called: &Called, instance: Name) -> bool {
        self.claims.all.get(&called.id).is_some_and(|claim| claim.is(instance, called.generation))
    }

    /// Judges that the writer of an outcome has the last claim of the record. A claim that a failover has not lost
    /// counts on the new server, too.
    pub(super) fn judge_claimed_writer(&self, id: i64, by: Name, line: &Line) -> Result<(), Violation> {
        let claim = self.claims.all.get(&id);
        if claim.is_some_and(|claim| claim.instance == by && claim.ended.is_none()) {
            return Ok(());
        }
        let text = format!("{} writes about record {id} without a claim", self.names.text(by));
        let shown =
            [claim.map(|claim| &claim.line), claim.and_then(|claim| claim.ended.as_ref()), Some(line)];
        Err(violation(Invariant::Fence, text, shown))
    }
}
