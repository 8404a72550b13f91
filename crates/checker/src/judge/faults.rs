//! Faults: what they excuse, and which times are without faults.

use std::collections::{BTreeSet, HashMap};

use super::{Judge, line::Line, names::Name};
use crate::{Expect, Violation, What};

/// The faults of a kind that have struck one instance, or all.
#[derive(Debug, Default)]
struct Strikes {
    active: u32,
    /// The begin or end of the last fault.
    last: Option<u64>,
}

/// The faults of a kind, by the instance that they have struck. Without a name they strike all.
#[derive(Debug)]
struct Kind {
    faults: BTreeSet<String>,
    strikes: HashMap<Option<Name>, Strikes>,
}

impl Kind {
    fn new(faults: &BTreeSet<String>) -> Self {
        Self { faults: faults.clone(), strikes: HashMap::new() }
    }

    fn note(&mut self, (fault, begins): (&str, bool), instance: Option<Name>, at: u64) {
        if self.faults.contains(fault) {
            let strikes = self.strikes.entry(instance).or_default();
            match begins {
                true => strikes.active += 1,
                false => strikes.active = strikes.active.saturating_sub(1),
            }
            strikes.last = Some(at);
        }
    }

    /// Whether a fault was active at or after this time.
    fn reaches(&self, instance: Option<Name>, from: u64) -> bool {
        let strikes = self.strikes.get(&instance);
        strikes.is_some_and(|strikes| strikes.active > 0 || strikes.last.is_some_and(|last| last >= from))
    }
}

#[derive(Debug)]
pub(super) struct Faults {
    excusing: Kind,
    delaying: Kind,
    /// The number of faults that have not ended, without crashes, and the end of the last one.
    pub(super) active: u32,
    pub(super) calm_since: u64,
}

impl Faults {
    pub(super) fn new(expect: &Expect) -> Self {
        let (excusing, delaying) = (Kind::new(&expect.excusing), Kind::new(&expect.delaying));
        Self { excusing, delaying, active: 0, calm_since: 0 }
    }

    /// Whether an excusing fault of the instance, or of all, was active at or after this time.
    pub(super) fn excuse(&self, instance: Name, from: u64) -> bool {
        self.excusing.reaches(Some(instance), from) || self.excuse_of_all(from)
    }

    /// Whether an excusing fault of all was active at or after this time.
    pub(super) fn excuse_of_all(&self, from: u64) -> bool {
        self.excusing.reaches(None, from)
    }

    /// Whether a fault that may have kept the instance from releasing partitions was active at or after this
    /// time.
    pub(super) fn delay(&self, instance: Name, from: u64) -> bool {
        let delayed = self.delaying.reaches(Some(instance), from) || self.delaying.reaches(None, from);
        delayed || self.excuse(instance, from)
    }

    /// Whether no fault is active, nor was active at or after this time.
    pub(super) fn is_calm_since(&self, at: u64) -> bool {
        self.active == 0 && self.calm_since < at
    }

    /// A fault of all processes without a duration.
    pub(super) fn strike_all(&mut self, at: u64) {
        self.excusing.strikes.entry(None).or_default().last = Some(at);
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
        for kind in [&mut self.faults.excusing, &mut self.faults.delaying] {
            kind.note((fault, begins), name, at);
        }
        match (fault.as_str(), instance) {
            ("crash", Some(instance)) if begins => {
                self.reach("crash");
                self.crash(instance, line);
                self.member_crashed(name.unwrap_or_default(), at);
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
