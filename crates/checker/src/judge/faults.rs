//! Faults: what they excuse, and which times are without faults.

use std::collections::{BTreeSet, HashMap};

use super::{Judge, line::Line, names::Name};
use crate::{Violation, What};

/// The excusing faults of one instance, or of all.
#[derive(Debug, Default)]
struct Excuse {
    active: u32,
    /// The end of the last fault.
    last: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    excusing: BTreeSet<String>,
    excuses: HashMap<Option<Name>, Excuse>,
    /// The number of faults that have not ended, without crashes, and the end of the last one.
    pub(super) active: u32,
    pub(super) calm_since: u64,
}

impl Faults {
    pub(super) fn new(excusing: &BTreeSet<String>) -> Self {
        Self { excusing: excusing.clone(), ..Self::default() }
    }

    /// Whether a fault of the instance, or of all, was active at or after this time.
    pub(super) fn excuse(&self, instance: Name, from: u64) -> bool {
        self.reaches(Some(instance), from) || self.excuse_of_all(from)
    }

    /// Whether a fault of all was active at or after this time.
    pub(super) fn excuse_of_all(&self, from: u64) -> bool {
        self.reaches(None, from)
    }

    fn reaches(&self, instance: Option<Name>, from: u64) -> bool {
        let excuse = self.excuses.get(&instance);
        excuse.is_some_and(|excuse| excuse.active > 0 || excuse.last.is_some_and(|last| last >= from))
    }

    /// Whether no fault is active, nor was active at or after this time.
    pub(super) fn is_calm_since(&self, at: u64) -> bool {
        self.active == 0 && self.calm_since < at
    }

    /// Notes a fault of all without a duration.
    pub(super) fn strike_all(&mut self, at: u64) {
        self.excuses.entry(None).or_default().last = Some(at);
        self.calm_since = at;
    }
}

impl Judge {
    pub(super) fn of_faults(&mut self, line: &Line) -> Result<(), Violation> {
        let (fault, instance, begins) = match &line.event.what {
            What::FaultBegan { fault, instance } => (fault, instance, true),
            What::FaultEnded { fault, instance } => (fault, instance, false),
            _ => return Ok(()),
        };
        let at = line.event.at;
        let name = instance.as_deref().map(|instance| self.names.of(instance));
        if self.faults.excusing.contains(fault) {
            let excuse = self.faults.excuses.entry(name).or_default();
            match begins {
                true => excuse.active += 1,
                false => excuse.active = excuse.active.saturating_sub(1),
            }
            excuse.last = Some(at);
        }
        match (fault.as_str(), instance) {
            ("crash", Some(instance)) if begins => {
                self.reach("crash");
                self.crash(instance, line);
                self.members_changed(name.unwrap_or_default(), at);
            }
            ("crash", _) => {}
            _ => {
                self.faults.active = match begins {
                    true => self.faults.active + 1,
                    false => self.faults.active.saturating_sub(1),
                };
                self.faults.calm_since = at;
                self.shares_disturbed();
            }
        }
        Ok(())
    }
}
